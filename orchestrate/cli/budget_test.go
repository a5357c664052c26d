package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gyre/envs"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/versions"
	"gyre/orchestrate/run/metrics"
)

// lottery has eight tasks, which come back. How many of the replies win depends on the task: none in the
// first, all in the last.
type lottery struct{ task int64 }

func init() {
	envs.Register(envs.Spec{Tag: "lottery", Type: "lottery", MaxActions: 1, PlainReplies: true,
		NewOptions: func() any { return &struct{}{} },
		New:        func(any) (envs.Env, error) { return &lottery{}, nil }})
}

func (l *lottery) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	l.task = seed % 8
	return envs.Start{}, nil
}

func (l *lottery) Task(seed int64) string { return strconv.FormatInt(seed%8, 10) }

func (l *lottery) Observe() envs.Observation {
	return envs.Observation{Text: fmt.Sprint("task ", l.task)}
}

func (l *lottery) Step(_ context.Context, action string) (envs.Result, error) {
	sum := int64(0)
	for _, b := range []byte(action) {
		sum += int64(b)
	}
	won := sum%7 < l.task
	return envs.Result{Reward: envs.Indicator(won), Success: won, Valid: true, Done: true}, nil
}

func (l *lottery) Close() error { return nil }

// budgetConfig writes a run whose episodes follow their tasks' noise.
func budgetConfig(t *testing.T, dir string) string {
	path := filepath.Join(dir, "budget.toml")
	text := fmt.Sprintf("[run]\nname = 'whole'\nsteps = 6\nvalidate_every = 0\nsave_every = 1\noutput = 'runs'\n"+
		"[model]\npath = %q\ndtype = 'float32'\n[[envs]]\ntag = 'lottery'\ngroups = 6\ngroup_size = 4\nmax_turns = 1\n"+
		"[[envs]]\ntag = 'sleeper'\ngroups = 2\ngroup_size = 3\nmax_turns = 2\n"+
		"[rollout]\nprompt = 'compact'\nthink = false\nmax_tokens = 4\nmax_length = 200\n[sampling]\nbudget = 'adaptive'\n"+
		"[filter]\nstrategy = 'none'\n[algorithm]\nadvantage = 'rloo'\n[actor]\nlr = 1e-3\n"+
		"loss_aggregation = 'seq-mean-token-sum'\n[analysis]\nenabled = false\n[checkpoint]\nkeep = 0\n", tinyPolicy(t))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A budget follows its tasks, counts each group as it was planned, and is the same in a run that is resumed, repeated
// by its schedule, played ahead, or spread over ranks.
func TestBudgetOfARun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := budgetConfig(t, dir)
	for _, staleness := range []string{"0", "2"} {
		run := func(name string, more ...string) string {
			mustGyre(t, dir, append([]string{"train", config, "rollout.staleness=" + staleness, "run.name=" + name + staleness},
				more...)...)
			return filepath.Join(dir, "runs", name+staleness)
		}
		whole := run("whole")
		sameCheckpoints(t, whole, run("again", "--replay-schedule", "runs/whole"+staleness), 1, 6)
		run("parts", "--until", "3")
		parts := run("parts", "--resume")
		if staleness == "0" { // how far a window reaches ahead depends on the time
			checkBudget(t, parts, 1)
			sameCheckpoints(t, whole, parts, 1, 6)
			sameCheckpoints(t, run("lanes", "fsdp.deterministic=true"),
				run("ranks", "fsdp.deterministic=true", "--ranks", "2"), 1, 6)
			continue
		}
		checkBudget(t, parts, 3)
		apart := run("apart", "--ranks", "2", "fsdp.samplers=1")
		checkBudget(t, apart, 3)
		sameCheckpoints(t, apart, run("together", "--replay-schedule", "runs/apart2"), 1, 6)
		sameCheckpoints(t, parts, run("repeat", "--replay-schedule", "runs/parts2"), 1, 6)
	}
}

// checkBudget holds what a run has saved against what it decided: of the steps after the first ones, whose groups have
// their sources' sizes.
func checkBudget(t *testing.T, run string, first int) {
	t.Helper()
	schedule, err := versions.Read(filepath.Join(run, versions.File))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range schedule.Steps {
		episodes, err := episode.ReadFile(filepath.Join(run, "rollouts", fmt.Sprintf("step_%d.jsonl", line.Step)))
		if err != nil {
			t.Fatal(err)
		}
		sizes, counts := make([]int, 8), make([]float64, 8)
		for _, e := range episodes {
			sizes[e.Group]++
			counts[e.Group] += e.Weight
		}
		if i < first {
			if line.Sizes != nil || counts[0] != 0 {
				t.Errorf("step %d: sizes %v are decided, and nothing was seen", line.Step, line.Sizes)
			}
			continue
		}
		if len(episodes) != 30 || !slices.Equal(sizes, line.Sizes) || slices.Min(sizes) < 2 {
			t.Errorf("step %d: groups of %v, decided %v: want them to be equal, and 30 episodes", line.Step, sizes, line.Sizes)
		}
		for g, count := range counts {
			if want := []float64{4, 4, 4, 4, 4, 4, 3, 3}[g]; count < want-1e-9 || count > want+1e-9 {
				t.Errorf("step %d: group %d counts %v, want %v", line.Step, g, count, want)
			}
		}
		if i == len(schedule.Steps)-1 && slices.Max(sizes) < 5 {
			t.Errorf("groups of %v at the end: some tasks are never or always won", sizes)
		}
	}
	for record, err := range metrics.Read(filepath.Join(run, "metrics.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		predicted, known := record.Float("budget/predicted")
		if equal, _ := record.Float("budget/equal"); known != (record.Step > first) || equal < predicted*(1-1e-9) {
			t.Errorf("step %d: %v predicted (%v), %v for equal sizes", record.Step, predicted, known, equal)
		}
	}
}
