package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
)

const ranksConfig = `
[run]
name = "run"
steps = %d
output = %q
validate_every = 0
validate_first = false
save_every = -1
[model]
path = %q
[[envs]]
tag = "Bandit"
[filter]
strategy = "none"
[algorithm]
advantage = "grpo"
entropy_coef = 0
kl_coef = 0
[actor]
lr = 1e-7
mini_batch = 8
[analysis]
enabled = false
[early_stop]
spread_fraction = 0
empty_steps = 0
`

// ranksCost trains on given episodes, with one process of all threads and with as many ranks of one thread each, in turns: what the ranks cost is what they
// send each other and wait for.
func ranksCost(ctx context.Context, o options, material *work.Material, log io.Writer) (*report.Ranks, error) {
	if o.threads < 2 {
		return nil, errors.New("one thread cannot be shared out: set -threads")
	}
	program, err := filepath.Abs("gyre")
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "gyre-bench-ranks-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	episodes, config := filepath.Join(folder, "episodes.jsonl"), filepath.Join(folder, "ranks.toml")
	model, err := filepath.Abs(o.model)
	if err == nil {
		err = writeEpisodes(episodes, material.Random(8, 256))
	}
	if err == nil {
		err = os.WriteFile(config, fmt.Appendf(nil, ranksConfig, o.repeats+1, folder, model), 0o644)
	}
	if err != nil {
		return nil, err
	}
	r := &report.Ranks{Threads: o.threads}
	for _, mode := range []string{"none", "optimizer", "full"} {
		row := report.Sharing{Shard: mode}
		for range 3 { // runs in turns, of which each has a step to warm up
			for _, n := range []int{1, o.threads} {
				args := []string{"train", config, "--replay", episodes}
				if n > 1 {
					args = append(args, "--ranks", strconv.Itoa(n), "fsdp.shard="+mode)
				}
				speeds, waited, err := trained(ctx, program, folder, o.threads, args)
				if err != nil {
					return nil, err
				}
				fmt.Fprintf(log, "ranks: %d of %d threads, fsdp.shard = %s: %.1f update tokens/s, %.0f %% waiting\n", n, o.threads/n, mode, speeds, 100*waited)
				if n == 1 {
					row.One = append(row.One, speeds)
				} else {
					row.Many, row.Waited = append(row.Many, speeds), append(row.Waited, waited)
				}
			}
		}
		r.Modes = append(r.Modes, row)
	}
	return r, nil
}

// trained runs the gyre command and gives the median of its steps' update tokens per second, and of the share in which a rank waited.
func trained(ctx context.Context, program, folder string, threads int, args []string) (speed, waited float64, err error) {
	run := filepath.Join(folder, "run")
	defer os.RemoveAll(run)
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "GYRE_THREADS="+strconv.Itoa(threads))
	if out, err := command.CombinedOutput(); err != nil {
		return 0, 0, fmt.Errorf("%v: %w: %s", command.Args, err, out)
	}
	var speeds, shares []float64
	for record, err := range metrics.Read(filepath.Join(run, metrics.File)) {
		if err != nil {
			return 0, 0, err
		}
		if v, ok := record.Float("perf/update_tokens_per_s"); ok && record.Step > 1 {
			share, _ := record.Float("perf/comm_share")
			speeds, shares = append(speeds, v), append(shares, share)
		}
	}
	if len(speeds) == 0 {
		return 0, 0, fmt.Errorf("%v has logged no update", command.Args)
	}
	return statistics.Quantile(0.5, speeds), statistics.Quantile(0.5, shares), nil
}

// writeEpisodes writes sequences as the episodes of two groups, every second one a success; all tokens but the first are trained on.
func writeEpisodes(path string, sequences [][]int32) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	for i, ids := range sequences {
		mask := make([]int, len(ids))
		for k := range mask {
			mask[k] = min(k, 1)
		}
		line := map[string]any{"group": 2 * i / len(sequences), "ids": ids, "mask": mask, "score": float64(i % 2), "rewards": [][2]any{{len(ids) - 1, float64(i % 2)}}}
		if err := encoder.Encode(line); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}
