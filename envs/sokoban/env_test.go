package sokoban

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/envs/envtest"
)

func play(t *testing.T, options map[string]any) *game {
	t.Helper()
	return envtest.Play[*game](t, "sokoban", options, 0)
}

func TestRewardsAndRules(t *testing.T) {
	g := play(t, map[string]any{"level": []any{
		"#######",
		"#@$. .#",
		"# $   #",
		"#######",
	}})
	steps := []struct {
		action    string
		reward    float64
		effective bool
		placed    float64
		done      bool
	}{
		{"Up", -0.1, false, 0, false},    // a wall
		{"right", 0.9, true, 1, false},   // box onto the first target; names match in any case
		{"Left", -0.1, true, 1, false},   // no pulling
		{"Right", -0.1, true, 1, false},  // a plain walk
		{"Right", -1.1, true, 0, false},  // box off the target
		{"Right", 0.9, true, 1, false},   // onto the second one
		{"Right", -0.1, false, 1, false}, // box against the wall
		{"Left", -0.1, true, 1, false},
		{"Down", -0.1, true, 1, false},
		{"Left", -0.1, true, 1, false}, // pushes the other box into the corner
	}
	for i, s := range steps {
		r, err := g.Step(t.Context(), s.action)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(r.Reward-s.reward) > 1e-12 || r.Effective != s.effective || r.Info["boxes_on_target"] != s.placed ||
			r.Done != s.done || !r.Valid || r.Success {
			t.Fatalf("step %d %s: %+v, want %+v\n%s", i, s.action, r, s, g.Observe().Text)
		}
	}
	if want := "#######\n#__O_√#\n#XP___#\n#######"; g.Observe().Text != want {
		t.Errorf("board\n%s\nwant\n%s", g.Observe().Text, want)
	}
}

func TestBoxDoesNotPushBox(t *testing.T) {
	g := play(t, map[string]any{"level": "#######\n#@$$..#\n#######"})
	if r, _ := g.Step(t.Context(), "Right"); r.Effective {
		t.Errorf("two boxes in a row moved:\n%s", g.Observe().Text)
	}
}

func TestFinishingPush(t *testing.T) {
	g := play(t, map[string]any{"level": "#####\n#@$.#\n#####"})
	r, err := g.Step(t.Context(), "Right")
	if err != nil || math.Abs(r.Reward-10.9) > 1e-12 || !r.Done || !r.Success || !r.Effective {
		t.Fatalf("%+v, %v: want a success worth 10.9", r, err)
	}
	if _, err := g.Step(t.Context(), "Left"); !errors.Is(err, envs.ErrNotRunning) {
		t.Errorf("a step after the end: %v, want ErrNotRunning", err)
	}
	if _, err := g.Reset(t.Context(), 1, 0); err != nil || g.Observe().Text != "#####\n#PXO#\n#####" {
		t.Errorf("reset does not restore the level: %v\n%s", err, g.Observe().Text)
	}
}

func TestStepLimitAndUnknownActions(t *testing.T) {
	g := play(t, map[string]any{"level": "#####\n#@$.#\n#####", "max_steps": 2})
	if r, err := g.Step(t.Context(), "jump"); err != nil || r.Valid || r.Reward != 0 || r.Done {
		t.Errorf("unknown action: %+v, %v", r, err)
	}
	if r, _ := g.Step(t.Context(), "Up"); r.Done {
		t.Error("ended after the first of two steps")
	}
	if r, _ := g.Step(t.Context(), "Up"); !r.Done || r.Success {
		t.Errorf("not ended unsolved after max_steps: %+v", r)
	}
}

func TestRenderFormats(t *testing.T) {
	level := "######\n#+$  #\n#  * #\n######" // the player on a target, one box placed
	coord := "Board size: 4 rows x 6 cols (zero-indexed).\nTargets: (1, 1), (2, 3)\nBoxes: (1, 2)\nBoxes on target: " +
		"(2, 3)\nPlayer on target: (1, 1)"
	drawing := "######\n#SX__#\n#__√_#\n######"
	for format, want := range map[string]string{
		"grid": drawing, "coord": coord, "grid_coord": "Coordinates: \n" + coord + "\nGrid Map: \n" + drawing,
	} {
		if got := play(t, map[string]any{"level": level, "observation": format}).Observe().Text; got != want {
			t.Errorf("%s:\n%s\nwant\n%s", format, got, want)
		}
	}
	g := play(t, map[string]any{"level": level, "glyphs": "W.GCBA@"})
	if got, want := g.Observe().Text, "WWWWWW\nW@B..W\nW..C.W\nWWWWWW"; got != want {
		t.Errorf("other glyphs:\n%s\nwant\n%s", got, want)
	}
	start, err := g.Reset(t.Context(), 1, 0)
	if text := start.Instruction; err != nil || !strings.Contains(text, "W: wall, .: floor, G: target") ||
		strings.Contains(text, "#: wall") {
		t.Errorf("the legend does not show the glyphs in use: %s", text)
	}
	start, err = play(t, map[string]any{"level": level, "observation": "coord"}).Reset(t.Context(), 1, 0)
	if text := start.Instruction; err != nil || !strings.Contains(text, "(3, 5)") || strings.Contains(text, "wall,") {
		t.Errorf("coordinates are explained wrongly: %s", text)
	}
}

func TestOtherNamesAndSeparator(t *testing.T) {
	g := play(t, map[string]any{"level": "#####\n#@$.#\n#####", "action_lookup": []any{"1", "2", "3", "4"},
		"separator": " "})
	if got, want := g.Observe().Text, "# # # # #\n# P X O #\n# # # # #"; got != want {
		t.Errorf("drawn as\n%s\nwant\n%s", got, want)
	}
	start, err := g.Reset(t.Context(), 1, 0)
	if way, ok := g.Solve(); err != nil || !ok || len(way) != 1 || way[0] != "4" ||
		!slices.Equal(start.Actions, []string{"1", "2", "3", "4"}) {
		t.Errorf("the expert says %v of %v", way, start.Actions)
	}
	if r, err := g.Step(t.Context(), "Right"); err != nil || r.Valid {
		t.Errorf("the default name: %+v, %v", r, err)
	}
	if r, err := g.Step(t.Context(), "4"); err != nil || !r.Success {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTags(t *testing.T) {
	for tag, want := range map[string]struct {
		rows, boxes, actions int
		contains             string
	}{
		"SimpleSokoban": {6, 1, 10, "#"}, "coord_sokoban": {6, 1, 10, "Coordinates:"}, "LARGERSOKOBAN": {8, 2, 10, "#"},
		"SokobanDifferentGridVocab": {6, 1, 10, "W"},
	} {
		spec, err := envs.Lookup(tag)
		if err != nil {
			t.Fatal(err)
		}
		env, err := spec.Make(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := env.Reset(t.Context(), 5, 0); err != nil {
			t.Fatal(err)
		}
		boxes, _ := env.(*game).board.boxes()
		if env.(*game).board.Rows != want.rows || boxes != want.boxes || spec.MaxActions != want.actions ||
			!strings.Contains(env.Observe().Text, want.contains) {
			t.Errorf("%s: %d rows, %d boxes, %d actions:\n%s", tag, env.(*game).board.Rows, boxes, spec.MaxActions,
				env.Observe().Text)
		}
	}
}

func TestWrongOptions(t *testing.T) {
	spec, _ := envs.Lookup("sokoban")
	for want, options := range map[string]map[string]any{
		"did you mean boxes?":          {"boxs": 1},
		"option size.0: expected":      {"size": []any{int64(2), int64(6)}},
		"a list of 2 numbers":          {"size": int64(6)},
		"option num_boxes: expected":   {"num_boxes": 0},
		"option observation: expected": {"observation": "pixels"},
		"option glyphs: expected 7":    {"glyphs": "#_O"},
		"distinct visible":             {"glyphs": "##O√XPS"},
		"exclude each other":           {"level": "#@$.#", "levels": "x"},
		"unknown character 'q'":        {"level": "#@$.q"},
		"expected one":                 {"level": "#$.#"},
		"1 boxes and 2 targets":        {"level": "#@$..#"},
		"solved already":               {"level": "#@*#"},
		"no such file":                 {"levels": "missing.txt"},
		">= 2 and <= 1000000":          {"search_depth": 1},
		"for Up, Down, Left, Right":    {"actions": []any{"u", "d", "l", "u"}},
		"max_steps: expected":          {"max_steps": 0},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}
