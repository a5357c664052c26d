package grid

import (
	"strings"
	"testing"
)

func TestEmptyObjectsAreLeftOut(t *testing.T) {
	got := Look{Format: "coord"}.Render(2, 3, nil, func() []Objects { return []Objects{{"Boxes", nil}, {"Player", []Pos{{1, 2}, {0, 0}}}} })
	if want := "Board size: 2 rows x 3 cols (zero-indexed).\nPlayer: (1, 2), (0, 0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSeparator(t *testing.T) {
	got := Look{Format: "grid", Glyphs: []rune("#√"), Separator: " "}.Render(2, 3, func(cell int) int { return cell % 2 }, nil)
	if want := "# √ #\n√ # √"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestExplainNamesTheTrueCorner(t *testing.T) {
	for format, want := range map[string][2]bool{"grid": {false, true}, "coord": {true, false}, "grid_coord": {true, true}} {
		text := Look{Format: format, Glyphs: []rune("#")}.Explain(4, 7, []string{"wall"}, "")
		if strings.Contains(text, "(3, 6)") != want[0] || strings.Contains(text, "#: wall") != want[1] {
			t.Errorf("%s: %s", format, text)
		}
	}
}

func TestCheckActions(t *testing.T) {
	order := []string{"up", "down"}
	if err := CheckActions([]string{"1", "2"}, order); err != nil {
		t.Error(err)
	}
	for _, names := range [][]string{nil, {"a"}, {"a", "A"}, {"a", ""}, {"a", " b"}, {"a", "b", "c"}} {
		if err := CheckActions(names, order); err == nil || !strings.Contains(err.Error(), "2 different names, for up, down") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

func TestDirections(t *testing.T) {
	p := Pos{3, 3}
	if p.Add(Up).Row != 2 || p.Add(Down).Row != 4 || p.Add(Left).Col != 2 || p.Add(Right).Col != 4 {
		t.Error("a direction points the wrong way")
	}
	if d := p.Distance(Pos{1, 4}); d != 3 {
		t.Errorf("distance %d, want 3", d)
	}
}
