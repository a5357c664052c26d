package bandit

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"gyre/envs"
)

// pair are the settings of the two arms of RAGEN's first generation. Both pay about a normal distribution; the
// risky one's has a second, higher peak.
type pair struct {
	Low     string  `option:"low_risk_name,lo_arm_name" doc:"name of the safe arm"`
	High    string  `option:"high_risk_name,hi_arm_name" doc:"name of the risky arm"`
	Safe    float64 `option:"lo_score,lo_arm_score" doc:"mean payment of the safe arm"`
	Lose    float64 `option:"hi_loscore,hi_arm_loscore" doc:"mean payment of the risky arm when it loses"`
	Win     float64 `option:"hi_hiscore,hi_arm_hiscore" doc:"mean payment of the risky arm when it wins"`
	Prob    float64 `option:"prob,hi_arm_hiscore_prob" range:"[0,1]" doc:"probability that the risky arm wins"`
	Scatter float64 `option:"std" range:"[0,)" doc:"standard deviation of every payment about its mean"`
}

func (o *pair) machine() (envs.Env, error) {
	low, high := strings.TrimSpace(o.Low), strings.TrimSpace(o.High)
	if low == "" || high == "" || strings.EqualFold(low, high) {
		return nil, fmt.Errorf("options low_risk_name and high_risk_name: expected two different names, got %q and %q",
			o.Low, o.High)
	}
	return twoArmed("high_arm", "Each pays a different amount on average, and their names are your only hint. Answer with "+
		"the name of the arm that you expect to pay more.",
		func(*rand.Rand) (string, string) { return low, high },
		func(luck *rand.Rand) float64 { return o.Safe + o.Scatter*luck.NormFloat64() },
		func(luck *rand.Rand) float64 {
			mean := o.Lose
			if luck.Float64() < o.Prob {
				mean = o.Win
			}
			return mean + o.Scatter*luck.NormFloat64()
		}), nil
}

// row are the settings of a machine with any number of arms and pulls.
type row struct {
	Arms    int     `option:"n_arms" range:"[2,100]" doc:"number of arms"`
	Pulls   int     `option:"pulls" range:"[1,10000]" doc:"pulls per episode"`
	MeanStd float64 `option:"mean_std" range:"(0,)" doc:"standard deviation of the arms' means, which are dealt about 0"`
	Noise   float64 `option:"std" range:"[0,)" doc:"standard deviation of a payment about its arm's mean"`
}

func (o *row) machine() (envs.Env, error) {
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
	envs.Register(
		envs.Spec{
			Tag: "TwoArmedBandit", Type: "bandit", Doc: "two named arms with normal payments, one pull (RAGEN's " +
				"first generation)",
			MaxActions: 1, MaxReplyWords: 100,
			NewOptions: func() any {
				return &pair{Low: "phoenix", High: "dragon", Safe: 0.2, Lose: 0.1, Win: 1, Prob: 0.25, Scatter: 0.1}
			},
			New: func(o any) (envs.Env, error) { return o.(*pair).machine() },
		},
		envs.Spec{
			Tag: "GaussianBandit", Type: "bandit", Doc: "numbered arms with normal payments, ten pulls (RAGEN's " +
				"first generation)",
			MaxActions: 10, MaxReplyWords: 100,
			NewOptions: func() any { return &row{Arms: 2, Pulls: 10, MeanStd: 1, Noise: 1} },
			New:        func(o any) (envs.Env, error) { return o.(*row).machine() },
		},
	)
}
