package rollout

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// Stream separates the random draws of different purposes.
type Stream string

// The streams of a run.
const (
	Train      Stream = "train"
	Validation Stream = "validation"
	Analysis   Stream = "analysis"
)

// Plan says what to play.
type Plan struct {
	Stream  Stream
	Step    int
	Batch   int          // of a training step: what draws are keyed by
	Sources []config.Env // groups are numbered over all sources, in order
	// Sizes are those of the groups, which have as many episodes in all as those of the sources; nil: the sources'.
	Sizes   []int
	EnvSeed int64 // seed of group 0's environment; group g plays EnvSeed + g
	Holdout Holdout
	// Sampling of replies. Seed and MaxTokens are set by the player.
	Sampling torch.Sampling
	// Progress, if not nil, is called by Play's goroutine after every finished episode.
	Progress func(finished, total int)
}

// Episodes counts the episodes of the plan.
func (p Plan) Episodes() int { return config.EpisodesOf(p.Sources) }

// Groups counts the groups of the plan.
func (p Plan) Groups() int { return config.GroupsOf(p.Sources) }

// size of a group of a source.
func (p Plan) size(group int, source config.Env) int {
	if len(p.Sizes) == 0 {
		return source.GroupSize
	}
	return p.Sizes[group]
}

// weigh makes the groups of a plan count in the loss as if they had the sizes of their sources, whatever sizes they
// have: each then is a mean over its episodes.
func (p Plan) weigh(episodes []*episode.Episode) {
	if len(p.Sizes) == 0 {
		return
	}
	members := map[int]int{}
	for _, e := range episodes {
		members[e.Group]++
	}
	var sizes []int
	for _, s := range p.Sources {
		sizes = append(sizes, slices.Repeat([]int{s.GroupSize}, s.Groups)...)
	}
	for _, e := range episodes {
		e.Weight = float64(sizes[e.Group]) / float64(members[e.Group])
	}
}

// TrainingPlan is a batch of a training step. Steps and batches are counted from 1, over the run: they are the same
// numbers unless steps play several batches (filter.max_batches). Environment seeds count up from run.env_seed without
// gaps or repetition, so that they follow from the batch alone.
func TrainingPlan(c *config.Config, step, batch int) Plan {
	return Plan{
		Stream: Train, Step: step, Batch: batch, Sources: c.Envs,
		EnvSeed:  c.Run.EnvSeed + int64(batch-1)*int64(config.GroupsOf(c.Envs)),
		Sampling: trainSampling(c.Rollout),
		Holdout:  Holdout{Share: c.Validation.Holdout},
	}
}

// ValidationPlan is the fixed held-out set: the same environments whatever the step.
func ValidationPlan(c *config.Config, step int) Plan {
	return Plan{
		Stream: Validation, Step: step, Sources: c.Validation.Envs, EnvSeed: c.Validation.Seed,
		Sampling: torch.Sampling{Temperature: c.Validation.Temperature, TopP: c.Validation.TopP},
		Holdout:  Holdout{Share: c.Validation.Holdout, Held: true},
	}
}

// AnalysisPlan is the separate batch of a gradient analysis: the training sources with analysis.groups groups in all
// (0 = as many as training plays) of analysis.group_size members (0 = the source's own). Its environment seeds count
// up from run.env_seed over the analyses of the run.
func AnalysisPlan(c *config.Config, step int) Plan {
	sources := apportion(c.Envs, c.Analysis.Groups)
	for i := range sources {
		if c.Analysis.GroupSize > 0 {
			sources[i].GroupSize = c.Analysis.GroupSize
		}
	}
	pass := 0
	if c.Analysis.Every > 0 {
		pass = (step - 1) / c.Analysis.Every
	}
	return Plan{
		Stream: Analysis, Step: step, Sources: sources,
		EnvSeed:  c.Run.EnvSeed + int64(pass)*int64(config.GroupsOf(sources)),
		Sampling: trainSampling(c.Rollout),
		Holdout:  Holdout{Share: c.Validation.Holdout},
	}
}

// apportion gives the sources total groups in proportion to those they have: the floors first, the rest to the
// largest fractions, ties to the source with more groups. A source that gets none is left out. A total of 0 changes
// nothing.
func apportion(sources []config.Env, total int) []config.Env {
	out := slices.Clone(sources)
	if total == 0 {
		return out
	}
	all, given := config.GroupsOf(sources), 0
	fraction := make([]int, len(out)) // numerators over all
	for i, s := range sources {
		out[i].Groups, fraction[i] = total*s.Groups/all, total*s.Groups%all
		given += out[i].Groups
	}
	for ; given < total; given++ {
		best := 0
		for i := range fraction {
			if fraction[i] > fraction[best] || fraction[i] == fraction[best] &&
				sources[i].Groups > sources[best].Groups {
				best = i
			}
		}
		out[best].Groups++
		fraction[best] = -1
	}
	return slices.DeleteFunc(out, func(s config.Env) bool { return s.Groups == 0 })
}

func trainSampling(c config.Rollout) torch.Sampling {
	return torch.Sampling{Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK, MinP: c.MinP}
}

// Holdout divides the first states of episodes between validation and everything else, by a hash of what the policy
// is shown. No training episode and no demonstration begins with a state of validation, whatever the seeds, the
// number of steps and the environment; both sides have the distribution that the environment gives them.
type Holdout struct {
	Share float64 // of the states that are validation's; 0 = every state is anybody's
	Held  bool    // this is validation
}

// holdoutTries bounds the seeds that are tried for one state. With a hundredth of the states to choose from, all of
// them fail for one state in 23,000.
const holdoutTries = 1000

// admits says whether an episode may begin with a state.
func (h Holdout) admits(state envs.Observation) bool {
	if h.Share == 0 {
		return true
	}
	sum := sha256.Sum256([]byte(state.String()))
	return (float64(binary.LittleEndian.Uint64(sum[:])) < h.Share*math.MaxUint64) == h.Held
}

// first is how an episode begins.
type first struct {
	envs.Start
	seed  int64 // taken
	state envs.Observation
}

// reset starts an environment from a seed, or from the first of its successors whose state is admitted.
func (h Holdout) reset(ctx context.Context, env envs.Env, seed int64, member int) (first, error) {
	next := seed
	for range holdoutTries {
		if err := ctx.Err(); err != nil {
			return first{}, context.Cause(ctx)
		}
		start, err := env.Reset(ctx, next, member)
		if err != nil {
			return first{}, fmt.Errorf("reset with seed %d: %w", next, err)
		}
		if state := env.Observe(); h.admits(state) {
			return first{start, next, state}, nil
		}
		next = envs.Reseed(next)
	}
	side := "training"
	if h.Held {
		side = "validation"
	}
	return first{}, fmt.Errorf("seed %d and its %d successors give no first state that validation.holdout = %g "+
		"leaves for %s: has the environment so few states? Set validation.holdout to 0", seed, holdoutTries-1,
		h.Share, side)
}
