package game2048

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, "game_2048", options, seed)
}

// cells reads sixteen hexadecimal digits.
func cells(text string) (b board) {
	for i, c := range text {
		b[i] = byte(strings.IndexRune("0123456789abcdef", c))
	}
	return b
}

func TestAgreesWithGymnasium2048(t *testing.T) {
	file, err := os.Open("testdata/gymnasium_2048.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	boards := 0
	for lines := bufio.NewScanner(file); lines.Scan(); boards++ {
		var text string
		var over bool
		var moves [][]any
		if err := json.Unmarshal(lines.Bytes(), &[]any{&text, &over, &moves}); err != nil {
			t.Fatal(err)
		}
		start := cells(text)
		if start.stuck() != over {
			t.Errorf("%s: stuck %v, want %v", text, start.stuck(), over)
		}
		for a, want := range moves {
			b := start
			points, moved := b.slide(a)
			if b != cells(want[0].(string)) || points != int(want[1].(float64)) || moved != want[2].(bool) {
				t.Errorf("%s %s: %x, %d points, moved %v; want %v", text, actionNames[a], b, points, moved, want)
			}
		}
	}
	if boards < 500 {
		t.Errorf("only %d boards compared", boards)
	}
}

func TestRewardsAndEnd(t *testing.T) {
	g := play(t, nil, 1)
	g.board = cells("1100000000000000")
	r, err := g.Step(t.Context(), "left")
	if err != nil || math.Abs(r.Reward-0.1*math.Log2(5)) > 1e-12 || r.Info["raw_reward"] != 4 || !r.Valid ||
		!r.Effective || r.Done {
		t.Errorf("merging two twos: %+v, %v", r, err)
	}
	if 16-g.board.empty() != 2 || g.score != 4 {
		t.Errorf("after the merge: %x, score %d", g.board, g.score)
	}
	g.board = cells("1234213412344321")
	before := g.Observe().Text
	if !strings.Contains(before, "Row 1: [2, 4, 8, 16]\nRow 2: [4, 2, 8, 16]") {
		t.Errorf("drawn as %s", before)
	}
	if r, _ := g.Step(t.Context(), "Left"); r.Valid || r.Effective || r.Reward != 0 || r.Info["raw_reward"] != -0.1 ||
		g.Observe().Text != before {
		t.Errorf("a move that moves nothing: %+v", r)
	}
	if _, err := g.Step(t.Context(), "Sideways"); err != nil {
		t.Error(err)
	}
	g = play(t, map[string]any{"use_log_reward": false, "target": 8}, 1)
	g.board = cells("2200000000000000")
	if r, _ := g.Step(t.Context(), "Right"); r.Reward != 8 || !r.Success || r.Done {
		t.Errorf("reaching the target: %+v", r)
	}
}

// A random game ends stuck, its score is what its merges made, and nothing is left of it after the next Reset.
func TestRandomGames(t *testing.T) {
	g, twos, spawned := play(t, nil, 0), 0, 0
	for seed := range int64(60) {
		if _, err := g.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
		fresh := play(t, nil, seed)
		if g.Observe().Text != fresh.Observe().Text || 16-g.board.empty() != 2 {
			t.Fatalf("seed %d starts as\n%s\nand as\n%s", seed, g.Observe().Text, fresh.Observe().Text)
		}
		rng, sum := envs.Rand("test", seed), 0.0
		for {
			action := actionNames[rng.IntN(4)]
			before := g.board
			r, err := g.Step(t.Context(), action)
			if err != nil {
				t.Fatal(err)
			}
			if r.Valid {
				sum += r.Info["raw_reward"]
				slid := before
				slid.slide(slices.Index(actionNames, action))
				for i := range slid {
					if slid[i] != g.board[i] {
						spawned++
						twos += 2 - int(g.board[i])
					}
				}
			}
			if s, _ := fresh.Step(t.Context(), action); s.Reward != r.Reward || fresh.board != g.board {
				t.Fatalf("seed %d: two games of one seed differ", seed)
			}
			if r.Done {
				if !g.board.stuck() || sum != float64(g.score) || r.Success {
					t.Fatalf("seed %d ended with %+v, score %d, points %g:\n%s", seed, r, g.score, sum,
						g.Observe().Text)
				}
				_, err := g.Step(t.Context(), action)
				if _, ok := g.Solve(); ok || !errors.Is(err, envs.ErrNotRunning) {
					t.Errorf("after the end there is a move: %v, %v", ok, err)
				}
				break
			}
		}
	}
	if rate := float64(twos) / float64(spawned); math.Abs(rate-0.9) > 0.02 {
		t.Errorf("%.3f of the new tiles are twos, want 0.9", rate)
	}
}

func TestWrongOptions(t *testing.T) {
	spec, _ := envs.Lookup("game_2048")
	for want, options := range map[string]map[string]any{
		"option two_prob": {"two_prob": 2}, "power of two": {"target": 100}, "did you mean target?": {"tarket": 64},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}

// The expert plays far better than chance, and no move of it is wasted.
func TestExpert(t *testing.T) {
	expert, random, reached := 0.0, 0.0, 0
	for seed := range int64(3) {
		g := play(t, map[string]any{"target": 1024}, seed)
		for {
			way, ok := g.Solve()
			if !ok || len(way) != 1 {
				t.Fatalf("seed %d: %q, %v on\n%s", seed, way, ok, g.Observe().Text)
			}
			r, err := g.Step(t.Context(), way[0])
			if err != nil || !r.Valid {
				t.Fatalf("%s: %+v, %v", way[0], r, err)
			}
			if r.Success {
				reached++
			}
			if r.Success || r.Done {
				break
			}
		}
		expert += float64(g.score)
		g = play(t, nil, seed)
		rng := envs.Rand("test", seed)
		for g.Running() {
			if _, err := g.Step(t.Context(), actionNames[rng.IntN(4)]); err != nil {
				t.Fatal(err)
			}
		}
		random += float64(g.score)
	}
	if expert < 4*random || reached < 2 {
		t.Errorf("the expert scores %.0f, chance %.0f; 1024 was reached %d times of 3", expert/3, random/3, reached)
	}
}
