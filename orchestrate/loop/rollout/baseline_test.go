package rollout

import (
	"math"
	"testing"

	_ "gyre/envs/sokoban"
	"gyre/orchestrate/config"
)

// The baseline plays the levels of the plan, once per group, with as many actions as the policy has.
func TestRandomBaseline(t *testing.T) {
	source := config.Env{Tag: "sokoban", Groups: 2000, GroupSize: 3, MaxTurns: 5, MaxActionsPerTurn: 2}
	plan := Plan{Sources: []config.Env{source}, EnvSeed: 1}
	all, err := PlayRandom(t.Context(), plan)
	if err != nil || math.Abs(all["sokoban/success"]-0.175) > 0.03 || all["sokoban/num_actions"] > 10 {
		t.Errorf("%v, %v: random moves solve 17 to 18 %% of the levels", all, err)
	}
	again, err := PlayRandom(t.Context(), plan)
	if err != nil || again["sokoban/success"] != all["sokoban/success"] {
		t.Errorf("%v and %v: the same plan gives the same baseline", all, again)
	}
	plan.Sources[0].MaxTurns = 1 // two actions in all
	short, err := PlayRandom(t.Context(), plan)
	if err != nil || short["sokoban/num_actions"] > 2 || short["sokoban/success"] > all["sokoban/success"]/2 {
		t.Errorf("%v, %v: want at most two actions", short, err)
	}
	plan.Sources[0].MaxTurns, plan.Holdout = 5, Holdout{Share: 0.2, Held: true}
	held, err := PlayRandom(t.Context(), plan)
	if err != nil || held["sokoban/episodic_return"] == all["sokoban/episodic_return"] {
		t.Errorf("%v, %v: want other levels", held, err)
	}
}

// A batch's baseline is the mean of its levels', each of which has random moves of its own.
func TestRandomBaselineCountsItsLevels(t *testing.T) {
	play := func(seed int64, groups int) map[string]float64 {
		source := config.Env{Tag: "sokoban", Groups: groups, GroupSize: 1, MaxTurns: 5, MaxActionsPerTurn: 2}
		found, err := PlayRandom(t.Context(), Plan{Sources: []config.Env{source}, EnvSeed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	const levels = 7
	sum := 0.0
	for seed := range int64(levels) {
		sum += play(1+seed, 1)["sokoban/episodic_return"]
	}
	if got := play(1, levels)["sokoban/episodic_return"]; math.Abs(got-sum/levels) > 1e-9 {
		t.Errorf("mean return %v, that of the levels one by one %v", got, sum/levels)
	}
}
