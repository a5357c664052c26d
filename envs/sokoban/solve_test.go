package sokoban

import (
	"slices"
	"strings"
	"testing"
)

// Every solution is replayed, and a slower search without pruning agrees on its length.
func TestSolutionsAreShortest(t *testing.T) {
	for seed := range int64(60) {
		b, _, err := generate(seed, 6, 6, 1+int(seed%2), 20)
		if err != nil {
			t.Fatal(err)
		}
		solution, ok := b.solve()
		if !ok {
			t.Fatalf("seed %d: no solution", seed)
		}
		if again, _ := b.solve(); !slices.Equal(solution, again) {
			t.Fatalf("seed %d: %v, then %v", seed, solution, again)
		}
		replay, moved := b, true
		for _, action := range solution {
			if replay, moved = replay.move(directions[action]); !moved {
				t.Fatalf("seed %d: %s of %v moves nothing", seed, actionNames[action], solution)
			}
		}
		if all, placed := replay.boxes(); all != placed {
			t.Fatalf("seed %d: %v leaves %d of %d boxes placed", seed, solution, placed, all)
		}
		if want := shortest(b); len(solution) != want {
			t.Errorf("seed %d: %d moves, the shortest solution has %d", seed, len(solution), want)
		}
	}
}

// shortest explores level by level, without any pruning.
func shortest(b *board) int {
	frontier, seen := []*board{b}, map[string]bool{b.key(): true}
	for depth := 1; len(frontier) > 0; depth++ {
		var next []*board
		for _, state := range frontier {
			for _, d := range directions {
				child, _ := state.move(d)
				if seen[child.key()] {
					continue
				}
				seen[child.key()] = true
				if all, placed := child.boxes(); all == placed {
					return depth
				}
				next = append(next, child)
			}
		}
		frontier = next
	}
	return -1
}

func TestSolveOfUnsolvableAndSolved(t *testing.T) {
	lost, err := parseLevel(strings.Split("#####\n#$ @#\n#  .#\n#####", "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if path, ok := lost.solve(); ok {
		t.Errorf("a box in a corner solved by %v", path)
	}
	g := play(t, map[string]any{"level": "#####\n#@$.#\n#####"})
	if path, ok := g.Solve(); !ok || !slices.Equal(path, []string{"Right"}) {
		t.Errorf("%v, %v: want [Right]", path, ok)
	}
	if _, err := g.Step(t.Context(), "Right"); err != nil {
		t.Fatal(err)
	}
	if path, ok := g.Solve(); !ok || len(path) != 0 {
		t.Errorf("a solved level: %v, %v", path, ok)
	}
}

// A level of Boxoban's size, with four boxes, is within reach.
func TestSolveFourBoxes(t *testing.T) {
	b, err := parseLevel([]string{
		"##########", "###    . #", "## .   $.#", "##    .$ #", "#####    #",
		"####   ###", "##### $###", "#####$ ###", "#####@####", "##########",
	})
	if err != nil {
		t.Fatal(err)
	}
	solution, _ := b.solve()
	for _, action := range solution {
		b, _ = b.move(directions[action])
	}
	if all, placed := b.boxes(); placed != all {
		t.Errorf("%v places %d of %d boxes", solution, placed, all)
	}
}

// What the environment remembers of a solution is at every step, wrong turns included, what a search from there finds.
func TestRememberedSolution(t *testing.T) {
	g := play(t, map[string]any{"size": []any{6, 6}, "boxes": 2})
	for seed := range int64(100) {
		if _, err := g.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
		for step := 0; g.Running(); step++ {
			fresh, solvable := g.board.solve()
			got, ok := g.Solve()
			want := make([]string, len(fresh))
			for i, a := range fresh {
				want[i] = g.options.Actions[a]
			}
			if ok != solvable || !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %v, %v; a search finds %v, %v", seed, step, got, ok, want, solvable)
			}
			if !ok {
				break
			}
			action := got[0]
			if step%4 == 3 {
				action = g.options.Actions[(seed+int64(step))%4]
			}
			if _, err := g.Step(t.Context(), action); err != nil {
				t.Fatal(err)
			}
		}
	}
}
