package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/envs/reward"
	"gyre/internal/answer"
	"gyre/internal/dataset"
	"gyre/orchestrate/config"
)

// rowByRow lets a validation source play a data set from its first row on, each once before one is played again, and
// says in a line which rows it repeats and misses, and how many training has, too. seed is that of its first group.
func rowByRow(ctx context.Context, c *config.Config, source int, set *dataset.Set, training []*dataset.Set,
	seed int64) {
	e := &c.Validation.Envs[source]
	if c.Ungrouped(source) {
		e.Groups = min(e.Groups, len(set.Rows))
	}
	options := map[string]any{}
	maps.Copy(options, e.Options) // a training source may share them
	options["first_seed"] = seed
	e.Options = options
	if !c.Run.ValidateFirst && c.Run.ValidateEvery <= 0 {
		return
	}
	if c.Validation.Holdout > 0 {
		c.Note(fmt.Sprintf("validation.envs.%d: with validation.holdout = %g rows are drawn by what they ask, so that "+
			"some are played several times", source, c.Validation.Holdout))
		return
	}
	played, err := played(ctx, *e, seed)
	if err != nil {
		return // said where it is played
	}
	asked, shared := map[string]int{}, 0 // rows that are played, by question
	for _, row := range set.Rows {
		asked[row.Question] += min(played[row.Name], 1)
	}
	for _, other := range training {
		if other == nil {
			continue
		}
		for _, row := range other.Rows {
			shared += asked[row.Question]
			delete(asked, row.Question)
		}
	}
	repeated, missed := e.Groups-len(played), len(set.Rows)-len(played)
	if repeated+missed+shared > 0 {
		c.Note(fmt.Sprintf("validation.envs.%d: %d groups play %d of the %d rows of %v; repeated: %d, missed: %d, "+
			"also in training: %d", source, e.Groups, len(played), len(set.Rows), cmp.Or(e.Options["file"], any("the sample")),
			repeated, missed, shared))
	}
}

// asksForNoForm reports whether answers are graded that no problem of a data set asks for in a form that the grader
// knows.
func asksForNoForm(set *dataset.Set, rewards []config.Reward) bool {
	graded := len(rewards) == 0 || slices.ContainsFunc(rewards, func(r config.Reward) bool {
		return reward.KindOf(r.Name, r.Options) == "correctness" && r.Options["answer"] != "whole"
	})
	return graded && !slices.ContainsFunc(set.Rows, func(row dataset.Row) bool {
		return reward.Verifies(row.Source) || slices.ContainsFunc(row.Prompt, func(m dataset.Message) bool {
			return slices.ContainsFunc([]string{`\boxed`, answer.Mark, "<answer>"}, func(mark string) bool {
				return strings.Contains(m.Content, mark)
			})
		})
	})
}

// played counts the groups of a source by the names of their tasks.
func played(ctx context.Context, e config.Env, seed int64) (map[string]int, error) {
	env, err := open(e)
	if err != nil {
		return nil, err
	}
	times := map[string]int{}
	for group := range e.Groups {
		start, err := env.Reset(ctx, seed+int64(group), 0)
		if err != nil {
			return nil, errors.Join(err, env.Close())
		}
		times[start.Name]++
	}
	return times, env.Close()
}
