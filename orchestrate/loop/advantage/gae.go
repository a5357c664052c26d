package advantage

const whitened = "the batch's mean and deviation hold the episode itself; with many episodes it is scaled"

var gae = Estimator{Name: "gae", Whitens: true, Claim: Claim{Unbiased, Biased, whitened},
	Linear: each(func(e Trajectory, o Options) (advantages, returns []float64) {
		return discounted(e, o.Gamma, o.Lambda)
	})}

var biLevelGAE = Estimator{Name: "bi_level_gae", Whitens: true, Claim: Claim{Unbiased, Biased, whitened},
	Linear: each(byTurns)}

// each applies an estimator that looks at one episode at a time.
func each(estimate func(Trajectory, Options) (advantages, returns []float64)) func([]Trajectory,
	Options) (advantages, returns [][]float64) {
	return func(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
		for _, e := range episodes {
			a, r := estimate(e, o)
			advantages, returns = append(advantages, a), append(returns, r)
		}
		return advantages, returns
	}
}

// discounted is generalised advantage estimation over one episode: with V' and A' of the next sampled token (0 after
// the last),
//
//	δ = r + γV' − V,   A = δ + γλA',   return = A + V.
//
// Other tokens show the next sampled token's advantage, and that advantage as their return.
func discounted(e Trajectory, gamma, lambda float64) (advantages, returns []float64) {
	advantages, returns = make([]float64, len(e.Mask)), make([]float64, len(e.Mask))
	nextValue, next := 0.0, 0.0
	for t := len(e.Mask) - 1; t >= 0; t-- {
		value := 0.0
		if e.Mask[t] {
			value = e.Values[t]
			next = e.Rewards[t] + gamma*nextValue - value + gamma*lambda*next
			nextValue = value
		}
		advantages[t], returns[t] = next, next+value
	}
	return advantages, returns
}

// byTurns credits turns first and tokens second (VAGEN). Over the turn ends, GAE with HighLevelGamma per turn gives
// each turn a return A + V; over the tokens of each turn, GAE with Gamma takes that return as the reward of the turn's
// last token and stops there. Turn ends are explicit, so a turn that earned exactly 0 is a turn like any other. Sampled
// tokens after the last turn end form a turn without a return.
func byTurns(e Trajectory, o Options) (advantages, returns []float64) {
	turnReturn := map[int]float64{}
	nextValue, next := 0.0, 0.0
	for k := len(e.TurnEnds) - 1; k >= 0; k-- {
		end := e.TurnEnds[k]
		next = e.Rewards[end] + o.HighLevelGamma*nextValue - e.Values[end] + o.HighLevelGamma*o.Lambda*next
		nextValue = e.Values[end]
		turnReturn[end] = next + nextValue
	}
	advantages, returns = make([]float64, len(e.Mask)), make([]float64, len(e.Mask))
	nextValue, next = 0, 0
	for t := len(e.Mask) - 1; t >= 0; t-- {
		if !e.Mask[t] {
			continue
		}
		reward := e.Rewards[t]
		if r, ok := turnReturn[t]; ok {
			reward, nextValue, next = r, 0, 0
		}
		next = reward + o.Gamma*nextValue - e.Values[t] + o.Gamma*o.Lambda*next
		nextValue = e.Values[t]
		advantages[t], returns[t] = next, next+nextValue
	}
	return advantages, returns
}

var reinforcePP = Estimator{Name: "reinforce_pp", Whitens: true, Claim: Claim{Unbiased, Biased, whitened},
	Linear: toGo}

// reinforce is the reward to come at each sampled token without any baseline (Williams, 1992).
var reinforce = Estimator{Name: "reinforce", Linear: toGo,
	Claim: Claim{Unbiased, Unbiased, "the policy gradient theorem"}}

func toGo(episodes []Trajectory, o Options) (advantages, returns [][]float64) {
	return rewardToGo(episodes, o.Gamma), nil
}

// rewardToGo is the discounted sum of the rewards from each sampled token to the end of its episode (REINFORCE++
// before whitening). Only sampled tokens exist in time: observations between them are passed without a discount, and
// rewards on them are ignored, so a reward at the end credits the replies of all turns (verl#7300).
func rewardToGo(episodes []Trajectory, gamma float64) [][]float64 {
	out := make([][]float64, len(episodes))
	for i, e := range episodes {
		out[i] = make([]float64, len(e.Mask))
		running := 0.0
		for t := len(e.Mask) - 1; t >= 0; t-- {
			if e.Mask[t] {
				running = e.Rewards[t] + gamma*running
				out[i][t] = running
			}
		}
	}
	return out
}
