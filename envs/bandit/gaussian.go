package bandit

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"gyre/envs"
)

// row are the settings of a machine with any number of arms and pulls.
type row struct {
	Arms    int     `option:"n_arms" range:"[2,100]" doc:"number of arms"`
	Pulls   int     `option:"pulls" range:"[1,10000]" doc:"pulls per episode; max_actions must allow them"`
	MeanStd float64 `option:"mean_std" range:"(0,)" doc:"standard deviation of the arms' means, which are dealt about 0"`
	Noise   float64 `option:"std" range:"[0,)" doc:"standard deviation of a payment about its arm's mean"`
}

func (o *row) machine() (*machine, error) {
	return &machine{
		rules: fmt.Sprintf("You stand before a slot machine with %d arms and have %d pulls. Every arm pays about an "+
			"average of its own, which you do not know and which does not change; payments scatter and may be "+
			"negative. Try the arms out, then keep to the best one: every payment counts.", o.Arms, o.Pulls),
		pulls: o.Pulls, info: "best_arm",
		deal: func(rng *rand.Rand) []arm {
			arms, best := make([]arm, o.Arms), 0
			means := make([]float64, o.Arms)
			for i := range arms {
				means[i] = o.MeanStd * rng.NormFloat64()
				if means[i] > means[best] {
					best = i
				}
				arms[i] = arm{name: strconv.Itoa(i + 1),
					pay: func(luck *rand.Rand) float64 { return means[i] + o.Noise*luck.NormFloat64() }}
			}
			arms[best].best = true
			return arms
		},
	}, nil
}

func init() {
	professions := envs.Native("bandit", options{Split: "train", payments: payments{0.1, 0, 1, 0.25}},
		(*options).machine)
	two := envs.Native("bandit", pair{Low: "phoenix", High: "dragon", payments: payments{0.2, 0.1, 1, 0.25},
		Scatter: 0.1}, (*pair).machine)
	many := envs.Native("bandit", row{Arms: 2, Pulls: 10, MeanStd: 1, Noise: 1}, (*row).machine)
	envs.Register(
		professions("Bandit", "two arms named after professions, one pull", 1, 100, nil),
		professions("BanditTest", "the same with professions kept for validation", 1, 100,
			func(o *options) { o.Split = "test" }),
		two("TwoArmedBandit", "two named arms with normal payments, one pull (RAGEN's first generation)", 1, 100, nil),
		many("GaussianBandit", "numbered arms with normal payments, ten pulls (RAGEN's first generation)", 10, 100,
			nil),
	)
}
