// Linear measures how the cost of a pass grows with its tokens and with the model's layers, and draws it:
//
//	go run ./scripts/linear MODEL OUT.png
//
// MODEL is a checkpoint of the Llama family. Its first layers alone make models of fewer layers (models/linear-N). Each
// is trained by `gyre train --replay` on random sequences of 256 tokens, so that all tokens of a step are one pass.
// Runs (runs/linear-tokens-TYPE-N, runs/linear-layers-TYPE-N) that are there already are not made again.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

const (
	length    = 256       // tokens of a sequence
	most      = 64 * 1024 // tokens of a pass
	forTokens = 6         // layers of the model whose pass grows
	forLayers = 4 * 1024  // tokens of the pass through models of different depth
)

var (
	depths = []int{2, 4, 8, 16, 30}
	types  = []string{"bfloat16", "float32"}
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/linear MODEL OUT.png")
		os.Exit(2)
	}
	if err := measure(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "linear:", err)
		os.Exit(1)
	}
}

func measure(model, out string) error {
	var rows []row
	for _, dtype := range types {
		sizes := []int{1024} // the first step warms up
		for tokens := 1024; tokens <= most; tokens *= 2 {
			sizes = append(sizes, slices.Repeat([]int{tokens}, min(max(1, 2*forLayers/tokens), 3))...)
		}
		r, err := train(model, dtype, "tokens", forTokens, sizes)
		if err != nil {
			return err
		}
		rows = append(rows, rowsOf(r, dtype, 0)...)
		for _, layers := range depths {
			if r, err = train(model, dtype, "layers", layers, []int{forLayers, forLayers, forLayers}); err != nil {
				return err
			}
			rows = append(rows, rowsOf(r, dtype, layers)...)
		}
	}
	return draw(rows, out)
}

// train has a model of so many layers learn from steps of so many tokens.
func train(model, dtype, what string, layers int, sizes []int) (*rundir.Run, error) {
	run := fmt.Sprintf("linear-%s-%s-%d", what, dtype, layers)
	if dir := filepath.Join("runs", run); atomicfile.Exists(dir, "metrics.jsonl") {
		return rundir.Read(dir)
	}
	cut := fmt.Sprintf("models/linear-%d", layers)
	if err := shorten(model, cut, layers); err != nil {
		return nil, fmt.Errorf("%s with %d layers: %w", model, layers, err)
	}
	episodes := filepath.Join(os.TempDir(), run+".jsonl")
	if err := episode.WriteFile(episodes, sequences(sizes)); err != nil {
		return nil, err
	}
	defer os.Remove(episodes)
	c := exec.Command("./gyre", "train", "configs/arithmetic_smollm2.toml", "--replay", episodes, "run.name="+run,
		fmt.Sprintf("run.steps=%d", len(sizes)), "model.path="+cut, "model.dtype="+dtype, "run.validate_every=0",
		fmt.Sprintf("actor.micro_batch_tokens=%d", most), fmt.Sprintf("actor.mini_batch=%d", most/length),
		"actor.recompute_logprobs=true", fmt.Sprintf("rollout.max_length=%d", length))
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%v: %w", c.Args, err)
	}
	return rundir.Read(filepath.Join("runs", run))
}

// shorten copies a checkpoint with its first layers alone, unless that is there.
func shorten(from, to string, layers int) error {
	if atomicfile.Exists(to, "config.json") {
		return nil
	}
	c, err := hf.ReadConfig(from)
	if err != nil {
		return err
	}
	c.NumLayers = int64(layers)
	all, err := hf.OpenWeights(from)
	if err != nil {
		return err
	}
	defer all.Close()
	var list []weights.Source
	for _, p := range c.Parameters(torch.HeadLM) {
		t := all.Tensors[p.Name]
		if t == nil {
			return fmt.Errorf("it has no tensor %s", p.Name)
		}
		list = append(list, weights.Source{Name: p.Name, DType: weights.F32, Shape: p.Shape,
			Fill: func(dst []byte) error {
				_, _, err := t.Dense(weights.F32, dst, nil)
				return err
			}})
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := hf.CopyCompanions(to, from); err != nil {
		return err
	}
	return hf.Save(to, c, list, hf.ShardSize)
}

// sequences are random ones for steps of so many tokens, in groups of two of which one is rewarded.
func sequences(sizes []int) (all []*episode.Episode) {
	random := rand.New(rand.NewPCG(1, 1))
	for step, tokens := range sizes {
		for i := range tokens / length {
			e := &episode.Episode{Step: step + 1, Group: i / 2, Index: i, Tag: "random", Score: float64(i % 2)}
			for t := range length {
				e.IDs, e.Mask = append(e.IDs, 1000+random.Int32N(40000)), append(e.Mask, t > 0)
			}
			e.Rewards = []episode.Reward{{Token: length - 1, Value: e.Score}}
			all = append(all, e)
		}
	}
	return all
}
