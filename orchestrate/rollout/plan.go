package rollout

import (
	"gyre/orchestrate/config"
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
	Sources []config.Env // groups are numbered over all sources, in order
	EnvSeed int64        // seed of group 0's environment; group g plays EnvSeed + g
	// Sampling of replies. Seed and MaxTokens are set by the player.
	Sampling torch.Sampling
	// Progress, if not nil, is called by Play's goroutine after every finished episode.
	Progress func(finished, total int)
}

// Episodes counts the episodes of the plan.
func (p Plan) Episodes() int {
	n := 0
	for _, s := range p.Sources {
		n += s.Groups * s.GroupSize
	}
	return n
}

// Groups counts the groups of the plan.
func (p Plan) Groups() int { return groups(p.Sources) }

func groups(sources []config.Env) int {
	n := 0
	for _, s := range sources {
		n += s.Groups
	}
	return n
}

// TrainingPlan is the batch of a training step (counted from 1). Environment seeds count up from run.env_seed without
// gaps or repetition, so that they follow from the step alone.
func TrainingPlan(c *config.Config, step int) Plan {
	return Plan{
		Stream: Train, Step: step, Sources: c.Envs,
		EnvSeed:  c.Run.EnvSeed + int64(step-1)*int64(groups(c.Envs)),
		Sampling: trainSampling(c.Rollout),
	}
}

// ValidationPlan is the fixed held-out set: the same environments whatever the step.
func ValidationPlan(c *config.Config, step int) Plan {
	return Plan{
		Stream: Validation, Step: step, Sources: c.Validation.Envs, EnvSeed: c.Validation.Seed,
		Sampling: torch.Sampling{Temperature: c.Validation.Temperature, TopP: c.Validation.TopP},
	}
}

// AnalysisPlan is the separate batch of a gradient analysis: every training source with analysis.groups groups shared
// out evenly (the first sources get the remainder), of analysis.group_size members. Its environment seeds count up from
// run.env_seed over the analyses of the run.
func AnalysisPlan(c *config.Config, step int) Plan {
	sources := make([]config.Env, len(c.Envs))
	for i, s := range c.Envs {
		s.Groups = c.Analysis.Groups / len(c.Envs)
		if i < c.Analysis.Groups%len(c.Envs) {
			s.Groups++
		}
		if c.Analysis.GroupSize > 0 {
			s.GroupSize = c.Analysis.GroupSize
		}
		sources[i] = s
	}
	pass := 0
	if c.Analysis.Every > 0 {
		pass = (step - 1) / c.Analysis.Every
	}
	return Plan{
		Stream: Analysis, Step: step, Sources: sources,
		EnvSeed:  c.Run.EnvSeed + int64(pass)*int64(c.Analysis.Groups),
		Sampling: trainSampling(c.Rollout),
	}
}

func trainSampling(c config.Rollout) torch.Sampling {
	return torch.Sampling{Temperature: c.Temperature, TopP: c.TopP, TopK: c.TopK, MinP: c.MinP}
}
