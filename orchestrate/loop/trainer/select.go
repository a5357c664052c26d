package trainer

import (
	"context"
	"fmt"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/filter"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
)

// Selection is what the filter kept of a batch of episodes, and the batch that is made of it: Episodes[i],
// RewardStd[i] and row i are of one episode.
type Selection struct {
	filter.Result
	Episodes  []*episode.Episode
	RewardStd []float64 // standard deviation of the rewards in each episode's group, before filtering
	Batch     *train.Batch

	scale     float64     // the filter's factor on advantages
	entropies [][]float32 // of the tokens, where the filter asks for them
	// of the batch before the filter: its longest episode less the first token, which is never predicted
	width int
}

// choose filters the groups of a batch; kept episodes stay in their order. keepAll only attaches the groups'
// statistics (the analysis before the filter).
func (p *preparation) choose(ctx context.Context, episodes []*episode.Episode, keepAll bool) (s Selection, err error) {
	defer p.clock.Phase("filter")(&err)
	var entropies [][]float32
	if m := p.Config.Filter.Metric; m == "entropy" || m == "entropy_variance" {
		what := train.What{Entropy: true, Temperature: experiment.Temperature(p.Config)}
		if entropies, err = p.Actor.Compute(ctx, session.BatchOf(episodes), what); err != nil {
			return s, fmt.Errorf("entropies for the filter: %w", err)
		}
	}
	groups, members := source.Candidates(episodes, entropies)
	options := p.Config.Filter
	if keepAll {
		options.Strategy, options.LossScaling = "none", "none"
	}
	s.Result = filter.Apply(members, options)
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
	without, err := withouts(p.Config.Filter)
	if err != nil {
		return s, err
	}
	for row, e := range episodes {
		s.width = max(s.width, len(e.IDs)-1)
		// An episode in which the policy said nothing has nothing to learn from.
		if std[row] != nil && e.PolicyTokens() > 0 && (keepAll || !coversAny(without, e)) {
			s.Episodes, s.RewardStd = append(s.Episodes, e), append(s.RewardStd, *std[row])
			if entropies != nil {
				s.entropies = append(s.entropies, entropies[row])
			}
		}
	}
	s.Batch = session.BatchOf(s.Episodes)
	return s, nil
}

// withouts are what a configuration leaves out of updates.
func withouts(f config.Filter) (list []config.Without, err error) {
	for _, text := range f.Without {
		w, err := config.ParseWithout(text)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}

func coversAny(list []config.Without, e *episode.Episode) bool {
	return slices.ContainsFunc(list, func(w config.Without) bool { return w.Covers(e.Step, e.Group, e.Tag, e.Label) })
}
