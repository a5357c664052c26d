package rubikscube

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, "rubikscube", options, seed)
}

func TestAgreesWithMagiccube(t *testing.T) {
	file, err := os.Open("testdata/magiccube.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cubes := 0
	for lines := bufio.NewScanner(file); lines.Scan(); cubes++ {
		var row struct{ Turns, Stickers string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		c := solvedCube()
		for _, name := range strings.Fields(row.Turns) {
			c.turn(slices.Index(actionNames, name))
		}
		if string(c[:]) != row.Stickers {
			t.Fatalf("%s: %s, magiccube has %s", row.Turns, c[:], row.Stickers)
		}
	}
	if cubes < 300 {
		t.Errorf("only %d cubes compared", cubes)
	}
}

// The cube has 1, 6, 27, 120, … states 0, 1, 2, 3, … quarter turns from the solved one (OEIS A079761).
func TestGoalsCountStates(t *testing.T) {
	counts := map[int]int{}
	for k := range goals() {
		distance := 0
		for at := k; goals()[at] >= 0; distance++ {
			c := unpack(at)
			c.turn(int(goals()[at]))
			at = c.key()
		}
		counts[distance]++
	}
	for d, want := range []int{1, 6, 27, 120, 534, 2256, 8969, 33058} {
		if counts[d] != want {
			t.Errorf("%d states %d turns away, want %d", counts[d], d, want)
		}
	}
}

// unpack makes the normalized cube of a key.
func unpack(k key) (c cube) {
	c[22], c[19], c[6] = 5, 4, 1
	for i := len(c) - 1; i >= 0; i-- {
		if i != 22 && i != 19 && i != 6 {
			c[i] = byte(k & 7)
			k >>= 3
		}
	}
	return c
}

// Solutions solve, are no longer than the scramble, and every step of one brings the next solution one nearer.
func TestSolutions(t *testing.T) {
	longest := 0
	for depth := 1; depth <= 12; depth++ {
		for seed := range int64(12) {
			g := play(t, map[string]any{"scramble_depth": depth, "max_steps": 100}, seed)
			way, ok := g.Solve()
			if !ok || len(way) == 0 || len(way) > depth*12 {
				t.Fatalf("depth %d, seed %d: %v, %v", depth, seed, way, ok)
			}
			longest = max(longest, len(way))
			for i, action := range way {
				r, err := g.Step(t.Context(), strings.ToLower(action))
				last := i == len(way)-1
				if err != nil || r.Done != last || r.Success != last || (r.Reward == 1) != last || !r.Effective {
					t.Fatalf("depth %d, seed %d, %v: step %d %+v, %v", depth, seed, way, i, r, err)
				}
				if rest, ok := g.Solve(); !ok || len(rest) != len(way)-1-i {
					t.Fatalf("depth %d, seed %d: after %v still %v", depth, seed, way[:i+1], rest)
				}
			}
		}
	}
	if longest < 8 {
		t.Errorf("the hardest cube took %d turns: the search from both ends was not needed", longest)
	}
}

func TestEpisode(t *testing.T) {
	g := play(t, map[string]any{"max_steps": 2}, 3)
	if g.cube.solved() {
		t.Error("the cube is solved at the start")
	}
	if r, err := g.Step(t.Context(), "X"); err != nil || r.Valid {
		t.Errorf("an unknown turn: %+v, %v", r, err)
	}
	way, _ := g.Solve()
	other := "U"
	if way[0][0] == 'U' || way[0][0] == 'D' {
		other = "L"
	}
	for i := range 2 {
		r, err := g.Step(t.Context(), other)
		if err != nil || r.Done != (i == 1) || r.Success || r.Reward != 0 {
			t.Errorf("turn %d: %+v, %v", i, r, err)
		}
	}
	if _, err := g.Step(t.Context(), "U"); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("a turn after the end: %v", err)
	}
	g.cube, g.Steps = solvedCube(), 0
	want := "Up (U): [W, W] [W, W]\nLeft (L): [O, O] [O, O]\nFront (F): [G, G] [G, G]\nRight (R): [R, R] [R, R]\n" +
		"Back (B): [B, B] [B, B]\nDown (D): [Y, Y] [Y, Y]\nStep: 0/2"
	if got := g.Observe().Text; got != want {
		t.Errorf("drawn as\n%s\nwant\n%s", got, want)
	}
	for seed := range int64(300) { // two turns undo each other once in twelve
		if play(t, map[string]any{"scramble_depth": 2}, seed).cube.solved() {
			t.Fatalf("seed %d starts solved", seed)
		}
	}
	spec, _ := envs.Lookup("rubikscube")
	for want, options := range map[string]map[string]any{"option scramble_depth": {"scramble_depth": 0},
		"option max_steps": {"max_steps": 0}} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}
