package trainer

import (
	"context"
	"fmt"
	"math"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/schedule"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
)

// Selection is what the filter kept of a batch of episodes, and the batch that is made of it: Episodes[i],
// RewardStd[i] and row i are of one episode.
type Selection struct {
	filter.Selection
	Episodes  []*episode.Episode
	RewardStd []float64 // standard deviation of the rewards in each episode's group, before filtering
	Batch     *train.Batch

	scale float64 // the filter's factor on advantages
	// of the batch before the filter: its longest episode less the first token, which is never predicted
	width          int
	oldFromSampler bool     // the old log-probs are the sampler's, unchecked
	gap            *float64 // the most that the sampler's log-probs are away from the trainer's; nil: not measured
	divergence     float64  // from the reference, where that is part of the rewards
	step           int
	entropies      [][]float32 // before the update, where actor.entropy_top or the filter asks for them
	energies       [][]float64 // see Trajectory.Energies, where the estimator reads them
	bonus          *float64    // coefficient of the entropy bonus, where it is not the configured one
	proximal       bool        // the old log-probs are those of the policy before the update
}

// preparation is the phase between rollout and update: it filters a batch and fills its columns. It remembers nothing
// of a batch.
type preparation struct {
	*session.Session
	clock   *session.Clock           // nil: its times are not taken
	given   bool                     // episodes are given instead of played
	older   bool                     // weights before the present ones may have drawn the tokens
	exact   bool                     // the sampler's log-probs equal the trainer's on this machine
	penalty *advantage.Controller    // of the divergence in the rewards; nil: it is not in them
	entropy *schedule.EntropyControl // nil: the coefficient of the bonus is fixed
}

// choose filters the groups of a batch; kept episodes stay in their order. keepAll only attaches the groups'
// statistics (the analysis before the filter).
func (p *preparation) choose(ctx context.Context, episodes []*episode.Episode, keepAll bool) (Selection, error) {
	var entropies [][]float32
	if m := p.Config.Filter.Metric; m == "entropy" || m == "entropy_variance" {
		var err error
		what := train.What{Entropy: true, Temperature: experiment.Temperature(p.Config)}
		if entropies, err = p.Actor.Score(ctx, session.BatchOf(episodes), what); err != nil {
			return Selection{}, fmt.Errorf("entropies for the filter: %w", err)
		}
	}
	groups := gradients.Groups(groupsOf(episodes), nil)
	members := make([][]filter.Member, len(groups))
	for g, group := range groups {
		for _, row := range group.Rows {
			m := filter.Member{Score: episodes[row].Score, Length: episodes[row].PolicyTokens()}
			if entropies != nil {
				for _, h := range entropies[row] {
					m.Entropy += float64(h)
				}
				m.Entropy /= math.Max(float64(m.Length), 1)
			}
			members[g] = append(members[g], m)
		}
	}
	options := p.Config.Filter
	if keepAll {
		options.Strategy, options.LossScaling = "none", "none"
	}
	s := Selection{Selection: filter.Apply(members, options)}
	s.scale = s.LossScale(options.LossScaling)
	for _, g := range s.Unscored {
		p.Log.Warnf("group %d was left out: its score is not a finite number", groups[g].ID)
	}
	std := make([]*float64, len(episodes)) // of the kept ones
	for _, g := range s.Kept {
		for _, row := range groups[g].Rows {
			std[row] = &s.Std[g]
		}
	}
	for row, e := range episodes {
		s.width = max(s.width, len(e.IDs)-1)
		// An episode in which the policy said nothing has nothing to learn from.
		if std[row] != nil && e.PolicyTokens() > 0 {
			s.Episodes, s.RewardStd = append(s.Episodes, e), append(s.RewardStd, *std[row])
			if entropies != nil {
				s.entropies = append(s.entropies, entropies[row])
			}
		}
	}
	s.Batch = session.BatchOf(s.Episodes)
	return s, nil
}

// objective is the loss of the update on a selection.
func (s *Selection) objective(c *config.Config) train.Objective {
	o := experiment.Objective(c)
	if s.bonus != nil {
		o.EntropyCoef = *s.bonus
	}
	return o
}

// prepare fills all columns of a selection.
func (p *preparation) prepare(ctx context.Context, s *Selection, line metrics.Line) error {
	if p.entropy != nil {
		s.bonus = new(p.entropy.Bonus(p.Config.Algorithm.EntropyTarget))
	}
	if p.older && s.step > 0 {
		line.Add(newStalenessMetrics(s.Episodes, s.step))
	}
	if err := p.score(ctx, s, line); err != nil {
		return err
	}
	p.advantages(s, line)
	return p.correct(ctx, s, line)
}

// score fills the columns that models compute: old and reference log-probs, and values.
func (p *preparation) score(ctx context.Context, s *Selection, line metrics.Line) (err error) {
	if err := p.oldLogprobs(ctx, s, line); err != nil {
		return err
	}
	b := s.Batch
	if p.Teacher != nil {
		err = p.clock.Measure("ref", func() (err error) {
			b.Reference, err = p.Actor.ScoreBy(ctx, b, p.Teacher.Score)
			return err
		})
	} else if k := p.Config.Algorithm.KLTopK; p.Reference != nil && k > 0 {
		err = p.clock.Measure("ref", func() (err error) {
			b.Reference, b.Support, err = p.Reference.Likeliest(ctx, b, experiment.Temperature(p.Config), k)
			return err
		})
	} else if p.Reference != nil {
		b.Reference, err = p.column(ctx, "ref", "reference log-probs", p.Reference, b)
	}
	if err != nil {
		return err
	}
	if b.Reference != nil {
		line.Add(scoreMetrics{Reference: new(b.SampledMean(b.Reference))})
	}
	if b.Support != nil {
		line.Add(scoreMetrics{Mass: new(b.SupportMass())})
	}
	if ctx.Err() == nil && p.Config.Algorithm.UsesEnergies() {
		err = p.clock.Measure("energies", func() (err error) {
			s.energies, err = p.energies(ctx, b)
			return err
		})
		if err != nil {
			return err
		}
	}
	if ctx.Err() == nil && p.Critic != nil {
		b.Values, err = p.column(ctx, "values", "values", p.Critic, b)
		return err
	}
	return context.Cause(ctx)
}

// column has a model compute a column; phase is what its time is logged as.
func (p *preparation) column(ctx context.Context, phase, name string, model *train.Learner,
	b *train.Batch) (column [][]float32, err error) {
	err = p.clock.Measure(phase, func() (err error) {
		column, err = model.Score(ctx, b, train.What{Temperature: experiment.Temperature(p.Config)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return column, nil
}

// oldLogprobs takes the sampler's log-probs where they are proven equal to the trainer's (the self-test at start) and
// those that replayed episodes and older weights' tokens carry, unless these are to be corrected for their policy, and
// computes the others.
func (p *preparation) oldLogprobs(ctx context.Context, s *Selection, line metrics.Line) error {
	trusted := !p.Config.Actor.RecomputeLogprobs && (p.exact || p.given)
	if (p.given || p.older) && p.Config.Corrects() {
		trusted = false
	}
	var others []int
	s.Batch.Old, s.Batch.Behaviour = make([][]float32, s.Batch.Len()), make([][]float32, s.Batch.Len())
	for i, e := range s.Episodes {
		s.Batch.Behaviour[i] = e.Logprob
		if trusted && e.Logprob != nil {
			s.Batch.Old[i] = e.Logprob
		} else {
			others = append(others, i)
		}
	}
	// Replayed log-probs are another policy's: their distance says nothing about this sampler.
	s.oldFromSampler = len(others) == 0 && !p.given && !p.older
	if len(others) == 0 {
		return nil
	}
	computed, err := p.column(ctx, "old_log_prob", "old log-probs", p.Actor, s.Batch.Take(others))
	if err != nil {
		return err
	}
	for k, i := range others {
		s.Batch.Old[i] = computed[k]
		if s.Batch.Behaviour[i] == nil {
			s.Batch.Behaviour[i] = computed[k]
		}
	}
	if !p.given && !p.older {
		s.gap = widest(s.Episodes, others, s.Batch.Old)
		line.Add(scoreMetrics{Gap: s.gap})
	}
	return nil
}

// widest is the largest distance of the sampler's log-probs from those of a column; nil where the sampler has given
// none.
func widest(episodes []*episode.Episode, rows []int, column [][]float32) *float64 {
	gap, known := 0.0, false
	for _, i := range rows {
		if episodes[i].Logprob == nil {
			continue
		}
		for t, sampled := range episodes[i].Mask {
			if sampled {
				gap, known = math.Max(gap, math.Abs(float64(column[i][t])-float64(episodes[i].Logprob[t]))), true
			}
		}
	}
	if !known {
		return nil
	}
	return &gap
}
