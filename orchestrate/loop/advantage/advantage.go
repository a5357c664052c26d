// Package advantage turns rewards into advantages: how much better than expected each sampled token was.
//
// All slices are token-aligned, one per episode. Only sampled tokens (mask true) exist in time: observations and chat
// markup between them are skipped, so the token after a reply's last one is the next reply's first one. Rewards
// belong on sampled tokens; those on other tokens are ignored by the estimators that use a critic. Arithmetic is in
// float64.
//
// Estimators:
//
//	gae                     generalised advantage estimation over sampled tokens (Schulman et al., 2016)
//	bi_level_gae            GAE over turns, then over the tokens of each turn (VAGEN, Wang et al., 2025)
//	grpo                    return relative to its group, in standard deviations (Shao et al., 2024); without the
//	                        division it is Dr.GRPO (Liu et al., 2025)
//	rloo                    return relative to the mean of the group's others (Ahmadian et al., 2024)
//	reinforce_pp            whitened reward-to-go over all sampled tokens that follow (REINFORCE++, Hu et al., 2025)
//	reinforce_pp_baseline   whitened return relative to the group's mean
//	gdpo                    the parts of the reward each relative to its group, weighted and whitened (GDPO, 2026)
//	optimal_token_baseline  reward to come less the group's baseline of least variance at each token (verl)
//	brpo                    grpo with the whole batch as one group (RAGEN, Wang et al., 2025)
//	reinforce               reward to come, as it is (Williams, 1992)
//	james_stein             rloo with a baseline drawn towards other groups (Zeng et al., 2025)
//	gigpo                   grpo, and each turn relative to turns that began in its state (Feng et al., 2025)
//	mt_grpo                 rewards of turns relative to the group's by turn index, added up (Zeng et al., 2025)
//	turn_grpo               reward to come of each turn relative to the group's (GTPO, Ding et al., 2025)
//	turn_rloo               reward to come of each turn relative to that of the group's others
//	optimal_turn_baseline   the same, the others weighed by the squared norms of their score functions
package advantage

import (
	"slices"

	"gyre/internal/masks"
	"gyre/orchestrate/config"
)

// Estimator is a way of turning rewards into advantages. Adding one is a file with its formula and a line in
// Estimators; a test says what configurations then lack: its name, and what it needs of a run.
type Estimator struct {
	Name string
	// Linear gives advantages that are linear in rewards and values, before they are divided or whitened, and what a
	// critic should predict (nil: the advantages). Other tokens than the sampled ones do not matter.
	Linear func(episodes []Trajectory, o Options) (advantages, returns [][]float64)
	// Divisor, if not nil, is what the advantages of an episode are divided by.
	Divisor func(episodes []Trajectory, o Options) func(i int) float64
	Adapts  bool // Linear takes more than deviations from the rewards of Options.whole
	Whitens bool // over all sampled tokens, after the division
	// WhitenedReturns: the returns are the whitened advantages.
	WhitenedReturns bool
	Claim           Claim // what is known of its bias
}

// Estimators are those that algorithm.advantage names.
var Estimators = []Estimator{gae, biLevelGAE, grpo, rloo, reinforcePP, reinforcePPBaseline, brpo, gdpo,
	optimalTokenBaseline, reinforce, jamesStein, gigpo, mtGRPO, turnGRPO, turnRLOO, optimalTurnBaseline}

// Find gives an estimator by its name, nil where there is none.
func Find(name string) *Estimator {
	i := slices.IndexFunc(Estimators, func(e Estimator) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &Estimators[i]
}

// Trajectory is what an estimator reads of one episode.
type Trajectory struct {
	Group    int       // episodes of one group started from the same state
	Mask     []bool    // true where the policy sampled the token
	Rewards  []float64 // per token
	Values   []float64 // the critic's estimate at each token; read by gae and bi_level_gae only
	Parts    []float64 // what each named part of the reward is over the episode, unweighted; read by gdpo only
	Energies []float64 // w²(1 − 2π + Σπ²) of each token; read by optimal baselines only
	TurnEnds []int     // index of the last sampled token of each turn, ascending; read by estimators by turns only
	States   []int     // equal where turns began in the same state, 0 or more, one per turn end; read by gigpo only
}

// Estimate holds the results, one token-aligned slice per episode.
type Estimate struct {
	Advantages [][]float64
	Returns    [][]float64 // what the critic should predict
	// Reweighting is nil unless groups were re-weighted.
	Reweighting *Reweighting
}

// Options say how advantages are estimated.
type Options struct {
	Advantage                     string    // name of an estimator
	Gamma, Lambda, HighLevelGamma float64   // discount per token, GAE's λ, and discount per turn
	StepWeight                    float64   // of gigpo's comparison of turns
	NormByStd                     bool      // grpo, brpo, gdpo, gigpo, mt_grpo and turn_grpo divide by the deviation
	PartWeights                   []float64 // of Trajectory.Parts
	SoftReweight, LengthWeight    bool
	ZeroTaskAdvantage             bool

	whole []Trajectory // see scales
}

// scales are the episodes that fix what is not linear in rewards, such as deviations: those given, unless only a share
// of their rewards is (see Share).
func (o Options) scales(given []Trajectory) []Trajectory {
	if o.whole != nil {
		return o.whole
	}
	return given
}

// From is how a configuration has advantages estimated.
func From(a config.Algorithm) Options {
	return Options{Advantage: a.Advantage, Gamma: a.Gamma, Lambda: a.Lambda, HighLevelGamma: a.HighLevelGamma,
		StepWeight: a.StepWeight, NormByStd: a.NormByStd, SoftReweight: a.SoftReweight, LengthWeight: a.LengthWeight,
		ZeroTaskAdvantage: a.ZeroTaskAdvantage}
}

// Compute estimates advantages: estimator, whitening where it has that, soft re-weighting, lossScale (the filter's, 1
// for none), length weighting and the zero-advantage ablation, in this order. The critic's returns are not scaled.
func Compute(episodes []Trajectory, o Options, lossScale float64) (e Estimate) {
	estimator, rows := Find(o.Advantage), masksOf(episodes)
	e.Advantages, e.Returns = estimator.Linear(episodes, o)
	if estimator.Divisor != nil {
		divisor := estimator.Divisor(episodes, o)
		for i, t := range masks.Places(rows) {
			e.Advantages[i][t] /= divisor(i)
		}
	}
	if e.Returns == nil {
		e.Returns = clone(e.Advantages)
	}
	if estimator.Whitens {
		whiten(e.Advantages, rows)
	}
	if estimator.WhitenedReturns {
		e.Returns = clone(e.Advantages)
	}
	if o.SoftReweight {
		e.Reweighting = softReweight(e.Advantages, episodes)
	}
	for _, a := range e.Advantages {
		for t := range a {
			a[t] *= lossScale
		}
	}
	if o.LengthWeight {
		lengthWeight(e.Advantages, rows)
	}
	if o.ZeroTaskAdvantage {
		for _, a := range e.Advantages {
			clear(a)
		}
	}
	return e
}

func masksOf(episodes []Trajectory) [][]bool {
	masks := make([][]bool, len(episodes))
	for i, e := range episodes {
		masks[i] = e.Mask
	}
	return masks
}

func clone(x [][]float64) [][]float64 {
	out := make([][]float64, len(x))
	for i := range x {
		out[i] = slices.Clone(x[i])
	}
	return out
}
