package frozenlake

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, options map[string]any, seed int64) *game {
	t.Helper()
	return envtest.Play[*game](t, "frozenlake", options, seed)
}

func TestWalkToTheGoal(t *testing.T) {
	for _, m := range []struct {
		rows  any
		moves int
	}{{"4x4", 6}, {[]any{"8x8"}, 14}} {
		g := play(t, map[string]any{"map": m.rows, "slippery": false}, 1)
		way, ok := g.Solve()
		if !ok || len(way) != m.moves {
			t.Fatalf("%v, %v: want %d moves", way, ok, m.moves)
		}
		for i, action := range way {
			r, err := g.Step(t.Context(), strings.ToUpper(action))
			if err != nil {
				t.Fatal(err)
			}
			last := i == len(way)-1
			if r.Done != last || r.Success != last || !r.Valid || !r.Effective || (r.Reward == 1) != last ||
				r.Info["slipped"] != 0 {
				t.Errorf("move %d %s: %+v", i, action, r)
			}
		}
		if rows := strings.Split(g.Observe().Text, "\n"); !strings.HasSuffix(rows[len(rows)-1], "√") {
			t.Errorf("the player is not shown on the goal:\n%s", g.Observe().Text)
		}
		if _, err := g.Step(t.Context(), "Up"); !errors.Is(err, envs.ErrNotRunning) {
			t.Errorf("a step after the end: %v, want ErrNotRunning", err)
		}
	}
}

func TestHoleEdgeAndUnknownAction(t *testing.T) {
	g := play(t, map[string]any{"map": "4x4", "slippery": "false"}, 1)
	if want := "P___\n_O_O\n___O\nO__G"; g.Observe().Text != want {
		t.Errorf("board\n%s\nwant\n%s", g.Observe().Text, want)
	}
	if r, err := g.Step(t.Context(), "swim"); err != nil || r.Valid {
		t.Errorf("unknown action: %+v, %v", r, err)
	}
	if r, _ := g.Step(t.Context(), "Left"); r.Effective || !r.Valid || r.Done {
		t.Errorf("over the edge: %+v", r)
	}
	if _, err := g.Step(t.Context(), "Down"); err != nil {
		t.Fatal(err)
	}
	r, _ := g.Step(t.Context(), "Right")
	if !r.Done || r.Success || r.Reward != 0 || r.Info["in_hole"] != 1 {
		t.Errorf("into the hole: %+v", r)
	}
	if want := "____\n_X_O\n___O\nO__G"; g.Observe().Text != want {
		t.Errorf("board\n%s\nwant\n%s", g.Observe().Text, want)
	}
	if way, ok := g.Solve(); ok {
		t.Errorf("a way out of the hole: %v", way)
	}
}

func TestOtherNamesAndSeparator(t *testing.T) {
	g := play(t, map[string]any{"map": "4x4", "slippery": false, "actions": []any{"1", "2", "3", "4"},
		"separator": " "}, 1)
	if way, ok := g.Solve(); !ok || len(way) != 6 || strings.Trim(strings.Join(way, ""), "1234") != "" {
		t.Errorf("the expert says %v", way)
	}
	if r, err := g.Step(t.Context(), "2"); err != nil || !r.Effective ||
		!strings.HasPrefix(g.Observe().Text, "_ _ _ _\nP O _ O\n") {
		t.Errorf("%+v, %v\n%s", r, err, g.Observe().Text)
	}
	if r, err := g.Step(t.Context(), "Down"); err != nil || r.Valid {
		t.Errorf("the default name: %+v, %v", r, err)
	}
}

func TestCoordinates(t *testing.T) {
	g := play(t, map[string]any{"map": "SFH\nFHG\nFFF", "observation": "grid_coord"}, 1)
	want := "Coordinates: \nBoard size: 3 rows x 3 cols (zero-indexed).\nStart: (0, 0)\nGoal: (1, 2)\nPlayer: (0, " +
		"0)\nHoles: (0, 2), (1, 1)\nGrid Map: \nP_O\n_OG\n___"
	if g.Observe().Text != want {
		t.Errorf("got\n%s\nwant\n%s", g.Observe().Text, want)
	}
	start, err := g.Reset(t.Context(), 1, 0)
	if text := start.Instruction; err != nil || !strings.Contains(text, "(2, 2) the bottom right") ||
		!strings.Contains(text, "slippery") {
		t.Errorf("instruction: %s", text)
	}
}

// Each direction is kept with success_rate, and both sides are equally likely.
func TestSlips(t *testing.T) {
	const n = 20_000
	g := play(t, map[string]any{"success_rate": 0.5}, 7)
	for intended := range 4 {
		var counts [4]float64
		for range n {
			counts[g.slide(intended, g.ice.Float64())]++
		}
		for taken, want := range map[int]float64{intended: 0.5, (intended + 1) % 4: 0.25, (intended + 3) % 4: 0.25,
			(intended + 2) % 4: 0} {
			if got := counts[taken] / n; math.Abs(got-want) > 0.02 {
				t.Errorf("%s became %s with frequency %.3f, want %.2f", actionNames[intended], actionNames[taken], got,
					want)
			}
		}
	}
}

// Members of a group that act alike fare alike, and the k-th ice does not depend on what was done before.
func TestGroupSharesTheIce(t *testing.T) {
	slips := func(actions []string) []float64 {
		g := play(t, map[string]any{"map": []any{"SFFFFFFF", "FFFFFFFF", "FFFFFFFF", "FFFFFFFG"}, "success_rate": 0.5},
			42)
		var list []float64
		for _, a := range actions {
			r, err := g.Step(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, r.Info["slipped"])
		}
		return list
	}
	a := slips([]string{"Down", "Up", "Left", "Left", "Up", "Left", "Up", "Left"})
	b := slips([]string{"Left", "Left", "Up", "Up", "Left", "Up", "Left", "Up"})
	if !slices.Equal(a, b) {
		t.Errorf("slips %v and %v differ", a, b)
	}
	if !slices.Contains(a, 1) || !slices.Contains(a, 0) {
		t.Errorf("slips %v: expected some and not only slips at success_rate 0.5", a)
	}
}

func TestWrongOptions(t *testing.T) {
	spec, _ := envs.Lookup("CoordFrozenLake")
	for want, options := range map[string]map[string]any{
		"did you mean slippery?":                {"slipery": true},
		"option p: expected":                    {"p": 1.5},
		"success_rate: expected":                {"success_rate": "-1"},
		"option size: expected":                 {"size": 1},
		"expected true or false":                {"is_slippery": "perhaps"},
		"expected a number":                     {"p": "high"},
		"expected equal rows":                   {"map": "SF\nG"},
		"expected S, F, H or G":                 {"map": "SX\nFG"},
		"one S and one G":                       {"map": "SF\nFF"},
		"cannot be reached":                     {"map": "SH\nHG"},
		"expected 6 characters":                 {"glyphs": "abc"},
		"expected one of grid, co":              {"observation": "Grit"},
		"for Left, Down, Right, Up":             {"actions": []any{"l", "d", "r"}},
		"expected one S and one G, got 0 and 0": {"map": []any{}},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
	env, err := spec.Make(map[string]any{"p": 0.0, "size": 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "raise p") {
		t.Errorf("a lake of holes: error %v, want a hint to raise p", err)
	}
}
