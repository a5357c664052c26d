package trainer

import (
	"context"
	"fmt"
	"os"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Evaluation is what a policy's validation found.
type Evaluation struct {
	Metrics    map[string]float64
	Episodes   []*episode.Episode
	Parameters int64 // of the policy
}

// Evaluate plays the validation set of a configuration with the policy in model.path, or with that of a checkpoint (a run directory, a
// global_step_N folder or a Hugging Face directory). It needs no run directory; episodes go to output unless that is
// empty. Every process of world plays some of the groups and returns the whole; nil is this process alone.
func Evaluate(ctx context.Context, c *config.Config, checkpoint, output string, world *ranks.World, console *metrics.Console) (*Evaluation, error) {
	if info, err := os.Stat(output); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: expected a file for the episodes", output)
	}
	e := &equipment{config: c, console: console, log: &rundir.Log{Console: console}, world: world}
	defer e.close()
	parts, err := e.evaluated(ctx, checkpoint)
	if err != nil {
		return nil, err
	}
	opened, err := e.open(ctx, parts, nil, nil)
	if err != nil {
		return nil, err
	}
	r := rollouts{equipment: e}
	episodes, stats, err := r.play(ctx, rollout.ValidationPlan(c, 0), "validation")
	if err != nil {
		return nil, err
	}
	if len(episodes) == 0 {
		return nil, fmt.Errorf("the environments failed in all %d episodes: %s", stats.Planned, strings.Join(stats.Warnings(), "; "))
	}
	if output != "" && world.Writes() {
		if err := episode.WriteFile(output, episodes); err != nil {
			return nil, err
		}
	}
	return &Evaluation{rollout.Summarize(episodes), episodes, experiment.Parameters(opened.Policy.Shape)}, nil
}

// evaluated are the parts of an experiment that a checkpoint is evaluated with.
func (e *equipment) evaluated(ctx context.Context, dir string) (experiment.Parts, error) {
	from, err := e.locate(ctx, dir)
	if err != nil {
		return experiment.Parts{}, err
	}
	return experiment.Parts{Play: true, Policy: from.Actor, Tokenizer: experiment.TokenizerOf(from, e.config.Model.Path)}, nil
}

// CheckEvaluation opens what Evaluate would play with, but for the weights.
func CheckEvaluation(c *config.Config, checkpoint string, console *metrics.Console) (*experiment.Experiment, error) {
	e := &equipment{config: c, console: console, log: &rundir.Log{Console: console}}
	parts, err := e.evaluated(context.Background(), checkpoint)
	if err != nil {
		return nil, err
	}
	return experiment.Open(e.config, parts)
}
