package rollout

import (
	"strconv"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/orchestrate/config"
)

// Small boards repeat; with a division of the states validation shares none with training and demonstrations,
// whatever the seeds, and its share of the states is the one asked for.
func TestHeldOutStatesAreValidationsAlone(t *testing.T) {
	lake := func(groups int) config.Env {
		return config.Env{Tag: "FrozenLake", Groups: groups, GroupSize: 1,
			Options: map[string]any{"size": 3, "p": 0.8, "observation": "grid"}}
	}
	c := &config.Config{Run: config.Run{Steps: 4, EnvSeed: 10}, Envs: []config.Env{lake(100)}}
	// the seeds themselves overlap
	c.Validation.Envs, c.Validation.Seed, c.SFT.EnvSeed = []config.Env{lake(200)}, 100, 50
	before, err := CountOverlap(t.Context(), c, 300)
	if err != nil || before.Shared < 150 {
		t.Fatalf("%+v, %v: this test needs a task whose boards repeat", before, err)
	}
	c.Validation.Holdout = 0.25
	after, err := CountOverlap(t.Context(), c, 300)
	if err != nil || after.Shared != 0 || after.HeldOut != 200 || after.Training != 400 || after.Demonstrations != 300 {
		t.Errorf("%+v, %v: want nothing shared", after, err)
	}
	held := 0
	for i := range 4000 {
		state := envs.Observation{Text: strconv.Itoa(i)}
		if (Holdout{Share: 0.25, Held: true}).admits(state) {
			held++
		} else if !(Holdout{Share: 0.25}).admits(state) {
			t.Fatalf("state %d is nobody's", i)
		}
	}
	if held < 900 || held > 1100 {
		t.Errorf("%d of 4000 states are held out, want about 1000", held)
	}
}

// What is played is what was counted: episodes name the seed whose state they began with, members of a group share
// it, and nothing changes without a division.
func TestEpisodesBeginOnTheirSideOfTheDivision(t *testing.T) {
	play := func(stream Stream, holdout Holdout) map[int64]int {
		tok := tokenizer(t)
		sampler := &script{t: t, tokenizer: tok, reply: func(uint64,
			int) string {
			return "x</think><answer>Up</answer>" + eos
		}}
		lake := config.Env{Tag: "FrozenLake", Groups: 30, GroupSize: 2, MaxTurns: 1, MaxActionsPerTurn: 1,
			Options: map[string]any{"size": 2, "p": 0.7}}
		episodes, _, err := player(t, sampler, defaults()).Play(t.Context(),
			Plan{Stream: stream, Sources: []config.Env{lake}, EnvSeed: 3, Holdout: holdout})
		if err != nil {
			t.Fatal(err)
		}
		seeds := map[int64]int{}
		for i, e := range episodes {
			if e.Seed != episodes[i/2*2].Seed {
				t.Errorf("members of group %d have the seeds %d and %d", e.Group, e.Seed, episodes[i/2*2].Seed)
			}
			if holdout.Share == 0 && e.Seed != int64(3+e.Group) {
				t.Errorf("without a division group %d has seed %d", e.Group, e.Seed)
			}
			seeds[e.Seed]++
		}
		return seeds
	}
	play(Train, Holdout{})
	train, held := play(Train, Holdout{Share: 0.5}), play(Validation, Holdout{Share: 0.5, Held: true})
	kept := 0
	for seed := range train {
		if held[seed] > 0 {
			t.Errorf("seed %d is on both sides", seed)
		}
		if seed >= 3 && seed < 33 {
			kept++
		}
	}
	if kept == 0 || kept == 30 {
		t.Errorf("%d of 30 seeds were kept by training: want some", kept)
	}
}

func TestAnEnvironmentOfOneStateCannotBeDivided(t *testing.T) {
	lake := config.Env{Tag: "FrozenLake", Groups: 1, GroupSize: 1, Options: map[string]any{"map": "4x4"}}
	var problems []string
	for _, held := range []bool{true, false} {
		if err := eachReset(t.Context(), lake, []int64{1}, Holdout{Share: 0.5, Held: held},
			func(level) error { return nil }); err != nil {
			problems = append(problems, err.Error())
		}
	}
	if len(problems) != 1 || !strings.Contains(problems[0], "validation.holdout = 0.5") ||
		!strings.Contains(problems[0], "so few states") {
		t.Errorf("%q: want one side without a state, told with the key", problems)
	}
}
