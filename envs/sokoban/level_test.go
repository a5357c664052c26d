package sokoban

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/envs/grid"
)

// plain draws a board with the default glyphs.
var plain = grid.Look{Format: "grid", Glyphs: []rune("#_O√XPS")}

func TestCharacterSetsAgree(t *testing.T) {
	xsb, err := parseLevel([]string{"######", "#@$*.#", "#- ###"})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := parseLevel([]string{"######", "#PX√O#", "#__###"})
	if err != nil {
		t.Fatal(err)
	}
	if xsb.render(plain) != ours.render(plain) {
		t.Errorf("\n%s\nand\n%s\nshould be one level", xsb.render(plain), ours.render(plain))
	}
}

// Every generated level survives being written and read.
func TestRenderedLevelsCanBeRead(t *testing.T) {
	for seed := range int64(50) {
		b, _, err := generate(seed, 7, 9, 2, 30)
		if err != nil {
			t.Fatal(err)
		}
		text := b.render(plain)
		read, err := parseLevel(strings.Split(text, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if read.render(plain) != text || read.key() != b.key() {
			t.Fatalf("seed %d changed:\n%s\n%s", seed, text, read.render(plain))
		}
	}
}

func TestLevelFiles(t *testing.T) {
	boxoban := "; 0\n#####\n#@$.#\n#####\n\n; 1\r\n#####\r\n#.$@#\r\n#####\r\n"
	lines := `{"id": "a", "rows": ["#####", "#@$.#", "#####"]}` + "\n\n" + `{"rows": ["#####", "#.$@#", "#####"]}` +
		"\n"
	for name, content := range map[string]string{"boxoban.txt": boxoban, "levels.jsonl": lines} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		g := play(t, map[string]any{"levels": path})
		for seed, want := range map[int64]string{0: "#PXO#", 1: "#OXP#", 2: "#PXO#", -1: "#OXP#"} {
			if _, err := g.Reset(t.Context(), seed, 0); err != nil {
				t.Fatal(err)
			}
			if rows := strings.Split(g.Observe().Text, "\n"); len(rows) != 3 || rows[1] != want {
				t.Errorf("%s: seed %d plays %q, want %q in the middle", name, seed, rows, want)
			}
		}
	}
}

// Levels of google-deepmind/boxoban-levels (Apache 2.0): 10×10 cells and four boxes. Those that the expert solves
// are solved by playing what it says.
func TestBoxobanLevels(t *testing.T) {
	g := play(t, map[string]any{"levels": "testdata/boxoban.jsonl", "max_steps": 1000})
	if len(g.levels) != 36 {
		t.Fatalf("%d levels, want 36", len(g.levels))
	}
	solved := 0
	for seed := range int64(6) {
		if _, err := g.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
		if all, _ := g.board.boxes(); all != 4 || g.board.Rows != 10 || g.board.Cols != 10 {
			t.Fatalf("level %d: %d boxes on %dx%d cells", seed, all, g.board.Rows, g.board.Cols)
		}
		way, ok := g.Solve()
		if !ok {
			continue
		}
		solved++
		for i, action := range way {
			if r, err := g.Step(t.Context(), action); err != nil || !r.Effective || r.Success != (i == len(way)-1) {
				t.Fatalf("level %d, step %d of %v: %+v, %v", seed, i, way, r, err)
			}
		}
	}
	if solved == 0 {
		t.Error("the expert solves none of six levels")
	}
}

func TestDefectiveLevelFiles(t *testing.T) {
	for want, content := range map[string]string{
		"level 1 at line 6":    "; 0\n#####\n#@$.#\n#####\n; 1\n#####\n#@$ #\n",
		"line 2: expected {":   "; 0\n{\"rows\": 3}\n",
		"no rows in this":      `{"level": []}`,
		"holds no level":       "; nothing\n\n",
		"unknown character 'x": "#####\n#@$x#\n",
	} {
		path := filepath.Join(t.TempDir(), "levels.txt")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readLevels(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", content, err, want)
		}
	}
}
