package session

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
)

// Evaluation is what a policy's validation found.
type Evaluation struct {
	Metrics    map[string]float64
	Episodes   []*episode.Episode
	Parameters int64 // of the policy
}

// Evaluated says which policy is evaluated: that of a checkpoint (a run directory, a global_step_N folder or a Hugging
// Face directory), or model.path with the adapter in a directory of PEFT's layout. One of them is "", or both are:
// the policy is then that in model.path.
type Evaluated struct{ Checkpoint, Adapter string }

// Evaluate plays the validation set of a configuration with a policy. It needs no run directory; episodes go to output
// unless that is empty. Every process of world plays some of the groups and returns the whole; nil is this process
// alone.
func Evaluate(ctx context.Context, c *config.Config, policy Evaluated, output string, world *ranks.World,
	console *metrics.Console) (*Evaluation, error) {
	if info, err := os.Stat(output); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: expected a file for the episodes", output)
	}
	s := New(c, console, world)
	defer s.Close()
	parts, err := s.evaluated(ctx, policy)
	if err != nil {
		return nil, err
	}
	opened, err := s.Open(ctx, parts, nil, nil)
	if err != nil {
		return nil, err
	}
	r := Rollouts{Session: s}
	episodes, stats, err := r.Play(ctx, rollout.ValidationPlan(c, 0), "validation")
	if err != nil {
		return nil, err
	}
	if len(episodes) == 0 {
		return nil, fmt.Errorf("the environments failed in all %d episodes: %s", stats.Planned,
			strings.Join(stats.Warnings(), "; "))
	}
	if output != "" && world.Writes() {
		if err := episode.WriteFile(output, episodes); err != nil {
			return nil, err
		}
	}
	line := metrics.Line{}
	line.Add(rollout.Summarize(episodes))
	return &Evaluation{line.Floats(), episodes, experiment.Parameters(opened.Policy.Shape)}, nil
}

// evaluated are the parts of an experiment that a policy is evaluated with.
func (s *Session) evaluated(ctx context.Context, policy Evaluated) (experiment.Parts, error) {
	if policy.Adapter != "" {
		return experiment.Parts{Play: true, Adapter: policy.Adapter}, s.settle(ctx, policy.Adapter)
	}
	from, err := s.Locate(ctx, policy.Checkpoint)
	if err != nil {
		return experiment.Parts{}, err
	}
	return experiment.Parts{Play: true, Policy: from.Actor, Tokenizer: experiment.TokenizerOf(from,
		s.Config.Model.Path)}, nil
}

// CheckEvaluation opens what Evaluate would play with, but for the weights.
func CheckEvaluation(c *config.Config, policy Evaluated, console *metrics.Console) (*experiment.Experiment, error) {
	s := New(c, console, nil)
	parts, err := s.evaluated(context.Background(), policy)
	if err != nil {
		return nil, err
	}
	return experiment.Open(s.Config, parts)
}
