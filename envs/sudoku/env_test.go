package sudoku

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, tag string, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, tag, options, seed)
}

// checkFull fails unless every unit of a full grid holds every number once, counted without the grid's own bookkeeping.
func checkFull(t *testing.T, g *grid) {
	t.Helper()
	for unit := range g.n {
		var row, col, box [17]int
		for i, v := range g.cells {
			r, c := i/g.n, i%g.n
			if r == unit {
				row[v]++
			}
			if c == unit {
				col[v]++
			}
			if r/g.box*g.box+c/g.box == unit {
				box[v]++
			}
		}
		for v := 1; v <= g.n; v++ {
			if row[v] != 1 || col[v] != 1 || box[v] != 1 {
				t.Fatalf("number %d in unit %d: %d in the row, %d in the column, %d in the box", v, unit, row[v],
					col[v], box[v])
			}
		}
	}
}

// solutions counts the ways to complete a grid, at most limit, by trying every number in reading order.
func solutions(g *grid, limit int) int {
	for i, v := range g.cells {
		if v != 0 {
			continue
		}
		count := 0
		for v := int8(1); v <= int8(g.n) && count < limit; v++ {
			if len(g.clashes(i, v)) == 0 {
				g.set(i, v)
				count += solutions(g, limit-count)
				g.set(i, 0)
			}
		}
		return count
	}
	return 1
}

func TestPuzzles(t *testing.T) {
	for _, size := range []int{4, 9, 16} {
		seeds := int64(40)
		if size == 16 {
			seeds = 3
		}
		for difficulty, share := range map[string]float64{"easy": 0.4, "medium": 0.5, "hard": 0.6} {
			for seed := range seeds {
				g := play(t, "SimpleSudoku", map[string]any{"size": size, "difficulty": difficulty}, seed)
				checkFull(t, g.solution)
				if got, want := g.grid.empty(), int(share*float64(size*size)); got != want {
					t.Fatalf("%dx%d %s: %d empty cells, want %d", size, size, difficulty, got, want)
				}
				for i, v := range g.grid.cells {
					if v != 0 && v != g.solution.cells[i] {
						t.Fatal("the puzzle is not part of its solution")
					}
				}
				if size < 16 && seed < 12 && solutions(g.grid, 2) != 1 {
					t.Fatalf("%dx%d %s, seed %d: more than one solution", size, size, difficulty, seed)
				}
			}
		}
	}
	ambiguous := 0
	for seed := range int64(60) {
		if solutions(play(t, "MiniSudoku", map[string]any{"difficulty": "hard", "unique": false}, seed).grid, 2) > 1 {
			ambiguous++
		}
	}
	if ambiguous == 0 {
		t.Error("unique = false: all of 60 hard puzzles have a single solution")
	}
}

// py-sudoku's solutions are found here too, and the expert plays them.
func TestAgreesWithPySudoku(t *testing.T) {
	const path = "testdata/py_sudoku.jsonl"
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seed := int64(0)
	for lines := bufio.NewScanner(file); lines.Scan(); seed++ {
		var row struct{ Solution [][]int8 }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		g := play(t, "SimpleSudoku", map[string]any{"puzzles": path}, seed)
		moves, ok := g.Solve()
		if !ok || len(moves) != g.grid.empty() {
			t.Fatalf("puzzle %d: %d moves, %v", seed, len(moves), ok)
		}
		sum := 0.0
		for i, m := range moves {
			r, err := g.Step(t.Context(), m)
			if err != nil || r.Done != (i == len(moves)-1) || r.Success != r.Done {
				t.Fatalf("puzzle %d, %s: %+v, %v", seed, m, r, err)
			}
			sum += r.Reward
		}
		if sum != float64(len(moves))+10 {
			t.Errorf("puzzle %d pays %g for %d moves", seed, sum, len(moves))
		}
		for i, v := range g.grid.cells {
			if v != row.Solution[i/g.grid.n][i%g.grid.n] {
				t.Fatalf("puzzle %d: another solution than py-sudoku's", seed)
			}
		}
	}
	if seed < 40 {
		t.Errorf("only %d puzzles compared", seed)
	}
}

const small = `{"puzzle": [[1, 0, 0, 4], [0, 4, 1, 0], [2, 0, 4, 0], [4, 0, 0, 1]]}`

// smallGame plays that puzzle.
func smallGame(t *testing.T, options map[string]any) *game {
	t.Helper()
	path := filepath.Join(t.TempDir(), "one.jsonl")
	if err := os.WriteFile(path, []byte(small+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"puzzles": path}
	for k, v := range options {
		all[k] = v
	}
	return play(t, "MiniSudoku", all, 0)
}

func TestRewardsAndFeedback(t *testing.T) {
	g := smallGame(t, map[string]any{"max_steps": 9})
	right := g.solution.cells[1] // row 1, column 2
	wrong := int8(5) - right     // 2 and 3 are open there
	for _, step := range []struct {
		action           string
		reward           float64
		valid, effective bool
		feedback         string
	}{
		{"put something", -0.1, false, false, "That is no move"},
		{"place 7 at row 1 col 2", -0.1, false, false, "from 1 to 4"},
		{"2 at (1, 1)", -0.1, true, false, "initial cell"},
		{"(1,2,4)", -0.1, true, false, "clashes with its row and its column and its box. Valid numbers there: 2, 3."},
		{fmt.Sprintf("place %d at row 1 col 2", wrong), 0.5, true, true, "Placed"},
		{fmt.Sprintf("place %d at row 1 col 2", wrong), -0.1, true, false, "already"},
		{fmt.Sprintf("place %d at row 1 col 2", right), 0.5, true, true, "Placed"}, // 1 in all for this cell
		{fmt.Sprintf("place %d at row 1 col 2", wrong), 0, true, true, "Placed"},
	} {
		r, err := g.Step(t.Context(), step.action)
		if err != nil || r.Reward != step.reward || r.Valid != step.valid || r.Effective != step.effective || r.Done ||
			!strings.Contains(g.Observe().Text, step.feedback) {
			t.Errorf("%s: %+v, %v; want %+v\n%s", step.action, r, err, step, g.Observe().Text)
		}
	}
	if r, _ := g.Step(t.Context(), "nonsense"); !r.Done || r.Success {
		t.Errorf("a refused move at the limit of steps: %+v, want the end", r)
	}
	if _, err := g.Step(t.Context(), "1,2,3"); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("a move after the end: %v", err)
	}
}

func TestFormats(t *testing.T) {
	plain := "1 . . 4\n. 4 1 .\n2 . 4 .\n4 . . 1"
	if got := smallGame(t, map[string]any{"observation": "simple"}).Observe().Text; got != plain {
		t.Errorf("simple:\n%s\nwant\n%s", got, plain)
	}
	drawn := "[1] . |  . [4]\n . [4]| [1] . \n--------------\n[2] . | [4] . \n[4] . |  . [1]"
	g := smallGame(t, map[string]any{"render_format": "detailed"})
	if got := g.Observe().Text; got != drawn {
		t.Errorf("detailed:\n%s\nwant\n%s", got, drawn)
	}
	g = smallGame(t, nil)
	if got := g.Observe().Text; !strings.HasPrefix(got, drawn+"\n\nValid numbers: (1,2): ") ||
		!strings.HasSuffix(got, "\nProgress: 8/16 cells filled (8 initial, 0 placed)\nSteps: 0/81") {
		t.Errorf("with_feedback:\n%s", got)
	}
	if _, err := g.Step(t.Context(), "2,1,3"); err != nil {
		t.Fatal(err)
	}
	if got := g.Observe().Text; !strings.Contains(got, " 3 [4]| [1] . ") ||
		!strings.Contains(got, "(8 initial, 1 placed)") {
		t.Errorf("after a move:\n%s", got)
	}
	if got := play(t, "SimpleSudoku", map[string]any{"size": 16},
		1).Observe().Text; len(strings.Split(got, "\n")[0]) != 16*4+3*2 {
		t.Errorf("16x16: the first line is %q", strings.Split(got, "\n")[0])
	}
}

func TestParse(t *testing.T) {
	want := move{row: 2, col: 3, value: 5}
	for _, text := range []string{
		"place 5 at row 2 col 3", "Place 5 at ROW 2 column 3.", "place 5 at (2,3)", "place 5 at 2,3", "5 at 2, 3",
		"5 at (2 ,3)", "(2,3,5)", "2,3,5",
	} {
		if got, ok := parseMove(text); !ok || got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "five at 2,3", "2 3 5", "place 5"} {
		if got, ok := parseMove(text); ok {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	spec, _ := envs.Lookup("SimpleSudoku")
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "puzzles.jsonl")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, options := range map[string]map[string]any{
		"option size: expected 4, 9 or 16":   {"size": 6},
		"option difficulty":                  {"difficulty": "evil"},
		"option blanks":                      {"blanks": 82},
		"option observation":                 {"observation": "grid"},
		"option max_steps":                   {"max_steps": 0},
		"no such file":                       {"puzzles": "missing.jsonl"},
		"row 1 (line 2): a puzzle of 0 rows": {"puzzles": file(small + "\n{}\n")},
		"row 2, column 1: 1 cannot stand": {"puzzles": file(strings.Replace(small, "[0, 4, 1, 0]", "[1, 4, 1, 0]",
			1))},
		"no solution could be found": {"puzzles": file(`{"puzzle": [[1, 2, 3, 0], [0, 0, 0, 4], [0, 0, 0, 0], [0, 0, 0, 0]]}`)},
		"it has no rows":             {"puzzles": file("\n")},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
	env, err := spec.Make(map[string]any{"blanks": 75})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "set unique = false") {
		t.Errorf("six clues: error %v, want a hint", err)
	}
}
