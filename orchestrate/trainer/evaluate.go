package trainer

import (
	"context"
	"fmt"
	"os"

	"gyre/orchestrate/checkpoint"
	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rollout"
	"gyre/orchestrate/rundir"
	"gyre/torch"
)

// Evaluate plays the validation set of a configuration with the policy in model.path, or in dir (a run directory, a global_step_N folder or
// a Hugging Face directory), and returns the metrics. It needs no run directory; episodes go to output unless that is empty.
func Evaluate(ctx context.Context, c *config.Config, dir, output string, console *metrics.Console) (map[string]float64, error) {
	if dir == "" {
		dir = c.Model.Path
	}
	from, passed, err := checkpoint.Find(dir, rundir.CheckpointPrefix)
	if err != nil {
		return nil, fmt.Errorf("loading the policy: %w", err)
	}
	for _, problem := range passed {
		fmt.Fprintf(console, "passed over: %v\n", problem)
	}
	dir = from.Actor
	if isDir(output) {
		return nil, fmt.Errorf("%s is a directory: expected a file for the episodes", output)
	}
	if _, err := setThreads(c.Run.Threads); err != nil {
		return nil, err
	}
	model, err := checkpoint.LoadModel(dir, torch.HeadLM, placement(c))
	if err != nil {
		return nil, fmt.Errorf("loading the policy: %w", err)
	}
	defer model.Close()
	copied := *c
	copied.Model.Path = dir
	s, err := openSampler(&copied, model)
	if err != nil {
		return nil, err
	}
	defer s.close()
	plan := rollout.ValidationPlan(c, 0)
	bar := console.Bar("validation", plan.Episodes())
	defer bar.Close()
	plan.Progress = func(finished, _ int) { bar.Set(finished) }
	episodes, _, err := s.player.Play(ctx, plan)
	if err != nil {
		return nil, err
	}
	if output != "" {
		if err := episode.WriteFile(output, episodes); err != nil {
			return nil, err
		}
	}
	return rollout.Summarize(episodes), nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
