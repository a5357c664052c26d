package torch

import (
	"errors"
	"strings"
	"testing"
)

// What is closed says so, whichever of two objects it is, and never reaches C++.
func TestEveryCallOnClosedObjectsFails(t *testing.T) {
	m, other := tinyModel(t, HeadLM), tinyModel(t, HeadLM)
	open := func() (*Gradients, *Optimizer) {
		g, err := NewGradients(m)
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewOptimizer(m, AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close(); o.Close() })
		return g, o
	}
	g, o := open()
	gone, stopped := open()
	gone.Close()
	stopped.Close()
	other.Close()
	b := Pack([][]int32{{1, 2}}, nil)
	_, values := other.Values(b)
	_, logits := other.Logits([]int32{1})
	_, parameters := other.Parameters()
	_, shard := other.Shard(0)
	_, own := NewOwnGradients(other)
	_, engine := NewEngine(other, EngineConfig{MaxLength: 8, MaxSequences: 1})
	_, _, dotLeft := gone.Dot(g)
	_, _, dotRight := g.Dot(gone)
	_, products := Products([]*Gradients{g, gone})
	_, sketch := gone.Sketch(4)
	_, norm := gone.Norm()
	_, gradient := gone.Tensor(0)
	_, part := gone.Shard(0)
	_, stepped := stopped.Step(g, 1e-3, 1)
	_, without := o.Step(gone, 1e-3, 1)
	_, momentPart := stopped.Shard(FirstMoment, 0)
	_, critic := other.ValueBackward(b, ValueInputs{Returns: make([]float32, 2), Weights: make([]float32, 2)}, g)
	for name, err := range map[string]error{
		"values": values, "logits": logits, "parameters": parameters, "shard": shard, "own gradients": own,
		"engine": engine, "gather": other.Gather(),
		"freeze": other.Freeze(0), "recompute": other.SetRecompute(true),
		"dot of closed": dotLeft, "dot with closed": dotRight, "products": products, "sketch": sketch, "norm": norm,
		"gradient": gradient, "its part": part,
		"add to closed": gone.Add(g, 1), "add closed": g.Add(gone, 1), "lane": gone.BeginLane(0),
		"add weights to closed": gone.AddWeights(other, 1), "add weights of closed": g.AddWeights(other, 1),
		"step of closed": stepped, "step with closed": without,
		"moment": momentPart, "critic": critic,
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", name, err)
		}
	}
	if other.Work() != (Work{}) || stopped.Steps() != 0 {
		t.Errorf("a closed model has done %+v, a closed optimizer %d steps", other.Work(), stopped.Steps())
	}
	// What is open goes on.
	if _, _, err := g.Dot(g); err != nil {
		t.Errorf("dot: %v", err)
	}
	if _, err := o.Step(g, 1e-3, 1); err != nil {
		t.Errorf("step: %v", err)
	}
}

// Lengths that do not fit are refused in Go, with both numbers: C++ takes all of them from the offsets.
func TestBatchesThatDoNotFit(t *testing.T) {
	m := tinyModel(t, HeadLM)
	for want, b := range map[string]Batch{
		"no sequences":                         {},
		"2 ids but a mask of 1":                {Offsets: []int64{0, 2}, IDs: []int32{1, 2}, Mask: []uint8{0}},
		"offsets run from 0 to 3, want 0 to 2": {Offsets: []int64{0, 3}, IDs: []int32{1, 2}, Mask: []uint8{0, 1}},
		"offsets run from 1 to 2, want 0 to 2": {Offsets: []int64{1, 2}, IDs: []int32{1, 2}, Mask: []uint8{0, 1}},
	} {
		if _, err := m.Logprobs(b, 1); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	b := Pack([][]int32{{1, 2, 3}}, nil)
	_, err := m.PolicyBackward(b, PolicyInputs{Weights: make([]float32, 2)}, PolicyLoss{Task: NewLoss("nll", nil)},
		Terms(nil, nil, nil))
	if !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), "has 2 entries for 3 tokens") {
		t.Errorf("weights of another length: %v", err)
	}
	if _, err := m.Logits(nil); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(),
		"empty sequence") {
		t.Errorf("logits of nothing: %v", err)
	}
}

func TestFinishesHaveNames(t *testing.T) {
	for f, want := range map[Finish]string{FinishStop: "stop", FinishLength: "length", FinishAbort: "abort",
		77: "Finish(77)"} {
		if got := f.String(); got != want {
			t.Errorf("%d is %q, want %q", int(f), got, want)
		}
	}
}
