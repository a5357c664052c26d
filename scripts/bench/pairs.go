package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"gyre/internal/statistics"
	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
)

// analysisLimits are what measurements of gradients may cost, in plain updates of the batch.
var analysisLimits = map[string]float64{"Components/3 parts": 2.2, "Components/8 parts": 4.5}

// benchmarkLine is "BenchmarkUpdate/plain-2   2   123456 ns/op", without the number of processors.
var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)

// analysisCost runs the trainer's own benchmark: what a gradient analysis costs beside a plain update.
func analysisCost(ctx context.Context, log io.Writer) ([]report.Pair, error) {
	fmt.Fprintln(log, "gradient analysis: go test ./orchestrate/loop/trainer -bench .")
	out, err := exec.CommandContext(ctx, "go", "test", "./orchestrate/loop/trainer", "-run", "^$", "-bench", ".",
		"-benchtime", "2x").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test: %w: %s", err, bytes.TrimSpace(out))
	}
	return readBenchmarks(string(out))
}

// readBenchmarks reads go test's output. The plain update is what the others are compared with.
func readBenchmarks(text string) ([]report.Pair, error) {
	var plain float64
	var pairs []report.Pair
	for _, m := range benchmarkLine.FindAllStringSubmatch(text, -1) {
		ns, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		name := strings.ReplaceAll(m[1], "_", " ")
		if name == "Update/plain" {
			plain = ns / 1e9
			continue
		}
		pairs = append(pairs, report.Pair{Section: "Gradient analysis, seconds (48 episodes of 128 tokens, 3.5 " +
			"million parameters)", Work: name,
			Against: "plain update", Gyre: []float64{ns / 1e9}, Floor: report.Floor{Memory: analysisLimits[name]}})
	}
	if plain == 0 {
		return nil, errors.New("go test printed no line for BenchmarkUpdate/plain")
	}
	for i := range pairs {
		pairs[i].Other = []float64{plain}
	}
	return pairs, nil
}

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

// rankFloor is the least share of one process's speed that as many ranks as it has threads must reach, with nothing in
// shards.
const rankFloor = 0.85

// ranksCost trains on given episodes, with one process of all threads and with as many ranks of one thread each, in
// turns: what the ranks cost is what they send each other and wait for.
func ranksCost(ctx context.Context, o options, material *work.Material, log io.Writer) ([]report.Pair, error) {
	if o.threads < 2 {
		return nil, errors.New("one thread cannot be divided among ranks: set -threads")
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
	var pairs []report.Pair
	for _, mode := range []string{"none", "optimizer", "full"} {
		pair := report.Pair{Section: "Ranks, update tokens/s on 8 sequences of 256 tokens",
			Work:    fmt.Sprintf("%d ranks, fsdp.shard = %s", o.threads, mode),
			Against: "one process"}
		if mode == "none" {
			pair.Floor.Speed = rankFloor
		}
		var waits []float64
		for range 3 { // runs in turns, of which each has a step to warm up
			one, _, err := trained(ctx, program, folder, o.threads, "train", config, "--replay", episodes)
			if err != nil {
				return nil, err
			}
			many, waited, err := trained(ctx, program, folder, o.threads, "train", config, "--replay", episodes,
				"--ranks", strconv.Itoa(o.threads),
				"fsdp.shard="+mode)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(log, "ranks: fsdp.shard = %s: %.1f update tokens/s, %.0f %% waiting; one process %.1f\n", mode,
				many, 100*waited, one)
			pair.Gyre, pair.Other, waits = append(pair.Gyre, many), append(pair.Other, one), append(waits, waited)
		}
		pair.Note = fmt.Sprintf("waiting %.0f %% of the step", 100*statistics.Quantile(0.5, waits))
		pairs = append(pairs, pair)
	}
	return pairs, nil
}

// trained runs the gyre command and gives the median of its steps' update tokens per second, and of the share in which
// a rank waited.
func trained(ctx context.Context, program, folder string, threads int, args ...string) (speed, waited float64,
	err error) {
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

// writeEpisodes writes sequences as the episodes of two groups, every second one a success; all tokens but the first
// are trained on.
func writeEpisodes(path string, sequences [][]int32) error {
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for i, ids := range sequences {
		mask := make([]int, len(ids))
		for k := range mask {
			mask[k] = min(k, 1)
		}
		score := float64(i % 2)
		line := map[string]any{"group": 2 * i / len(sequences), "ids": ids, "mask": mask, "score": score,
			"rewards": [][2]any{{len(ids) - 1, score}}}
		if err := encoder.Encode(line); err != nil {
			return err
		}
	}
	return os.WriteFile(path, lines.Bytes(), 0o644)
}
