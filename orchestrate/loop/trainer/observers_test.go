package trainer

import (
	"context"
	"io"
	"math"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Thoughts that are scored together, some after one prompt, get the log-probs that each gets by itself.
func TestThoughtsAreScoredApart(t *testing.T) {
	want := readSlow(t)["exact_gae_old"]
	cfg, err := config.Parse("slow.toml", []byte(want.toml()), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := openProbe(context.Background(), cfg, Probe{Rollouts: slow + "/" + want.Config.Episodes,
		Console: metrics.NewConsole(io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var sequences []collapse.Sequence
	for i, e := range p.given {
		for _, other := range p.given[:min(i+1, 3)] {
			prompt := other.IDs[:len(other.IDs)/2]
			thought := e.IDs[len(e.IDs)/2:]
			sequences = append(sequences, collapse.Sequence{IDs: append(append([]int32{}, prompt...), thought...),
				From: len(prompt)})
		}
	}
	together, err := (&collapseObserver{Session: p.Session}).scoreThoughts(context.Background(), sequences)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range sequences {
		mask := make([]bool, len(s.IDs))
		for k := range mask {
			mask[k] = k >= s.From
		}
		logprobs, err := p.Actor.Model.Logprobs(torch.Pack([][]int32{s.IDs}, [][]bool{mask}),
			experiment.Temperature(cfg))
		if err != nil {
			t.Fatal(err)
		}
		alone := 0.0
		for _, l := range logprobs {
			alone += float64(l)
		}
		if alone >= 0 || math.Abs(together[i]-alone) > 1e-4*math.Abs(alone) {
			t.Errorf("sequence %d: %g together, %g alone", i, together[i], alone)
		}
	}
	if len(sequences) < 6 {
		t.Errorf("only %d sequences", len(sequences))
	}
}
