package source

import (
	"math"
	"slices"

	"gyre/internal/masks"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/budget"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// shares decide how many episodes each group of a batch has (sampling.budget). The sizes of batch n follow from the
// steps up to n − 1 − staleness: they are decided before anybody may begin the batch, whenever that is.
type shares struct {
	Run
	decided sizes
}

// sizes are those of the groups of batches that somebody may play, by the number of the batch.
type sizes map[int][]int

// plan is a batch of a training step with its sizes.
func (s sizes) plan(c *config.Config, step, batch int) rollout.Plan {
	p := rollout.TrainingPlan(c, step, batch)
	if fit(c, s[batch]) {
		p.Sizes = s[batch]
	}
	return p
}

// fit reports whether sizes are those of a configuration's groups: a run may go on with others.
func fit(c *config.Config, list []int) bool {
	sum := 0
	for _, n := range list {
		sum += n
	}
	return len(list) == 0 || len(list) == config.GroupsOf(c.Envs) && sum == c.Episodes()
}

// newShares goes on with what a checkpoint has decided.
func newShares(r Run) *shares {
	s := &shares{Run: r, decided: sizes{}}
	if !r.Config.Adaptive() {
		return s
	}
	if r.State.Budget == nil {
		r.State.Budget = &budget.State{}
	}
	if slices.ContainsFunc(r.State.Budget.Planned, func(p budget.Planned) bool { return !fit(r.Config, p.Sizes) }) {
		r.Log.Warnf("the budget begins anew (sampling.budget): the checkpoint's was for other groups")
		r.State.Budget = &budget.State{}
	}
	for _, p := range r.State.Budget.Planned {
		s.decided[p.Batch] = p.Sizes
	}
	return s
}

// learn takes in the batch of a step, decides the sizes of the next one that nobody may have begun, and writes the
// step's line.
func (s *shares) learn(batch int, played []*episode.Episode, line metrics.Line) error {
	c, state := s.Config, s.State.Budget
	if !c.Adaptive() {
		return nil
	}
	places, err := s.Sampler.Player.Places(s.decided.plan(c, 0, batch))
	if err != nil {
		return err
	}
	groups := groupsOf(played, places, c.Actor.LossAggregation)
	line.Add(state.Compare(state.At(batch), groups, c.Episodes(), c.Sampling.Memory))
	state.Learn(groups, c.Sampling.Memory)
	state.Forget(batch)
	delete(s.decided, batch)
	next := batch + 1 + c.Rollout.Staleness
	if places, err = s.Sampler.Player.Places(s.decided.plan(c, 0, next)); err != nil {
		return err
	}
	state.Plan(next, places, c.Sampling.Floor)
	if _, follows := s.decided[next]; !follows { // a run that is repeated had its own
		s.decided[next] = state.At(next).Sizes
	}
	return nil
}

// groupsOf are the groups that were played of those that were planned.
func groupsOf(played []*episode.Episode, places []budget.Place, aggregation string) (groups []budget.Group) {
	for _, members := range session.Members(played) {
		g := budget.Group{Place: places[members[0].Group]}
		for _, e := range members {
			if g.Energy += energy(e, aggregation) / float64(len(members)); e.Success {
				g.Won = append(g.Won, e.Score)
			} else {
				g.Lost = append(g.Lost, e.Score)
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// energy is the squared norm of the score function of an episode by the logits of its sampled tokens, Σ (1 − π)², times
// the square of what the loss multiplies its tokens by. Tokens whose probability nobody has told count 1.
func energy(e *episode.Episode, aggregation string) (sum float64) {
	for t := range masks.Tokens(e.Mask) {
		rest := 1.0
		if e.Logprob != nil {
			rest = 1 - math.Exp(float64(e.Logprob[t]))
		}
		sum += rest * rest
	}
	if aggregation == "seq-mean-token-mean" {
		n := float64(max(e.PolicyTokens(), 1))
		return sum / (n * n)
	}
	return sum
}
