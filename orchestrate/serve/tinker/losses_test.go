package tinker

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/orchestrate/serve"
	"gyre/orchestrate/serve/host"
	"gyre/torch"
)

// open makes a server of a policy of a few thousand parameters.
func open(t *testing.T, change func(*Options)) *Server {
	t.Helper()
	dir, o := t.TempDir(), policyinit.Defaults
	o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Intermediate, o.Vocab, o.Std = 32, 2, 2, 1, 32, 259, 0.2
	o.MaxPositions = 512
	if _, err := policyinit.Create(dir, o); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(context.Background(), host.Options{Dir: dir, Name: "tiny",
		Placement: torch.Placement{Device: "cpu", Compute: torch.ComputeF32}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	options := Options{Dir: t.TempDir(), Warn: func(text string) { t.Log(text) }}
	if change != nil {
		change(&options)
	}
	s := New(h, options)
	t.Cleanup(s.Close)
	return s
}

// learning is a model outside any session.
func learning(t *testing.T, s *Server) *model {
	t.Helper()
	m := &model{lora: torch.LoRA{Rank: 4, Scale: 8, Targets: torch.TargetsOf(torch.TargetNames[1:8])}}
	if err := s.load(m, "", 7); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.learner.Close)
	// B is zero at first, and with it the gradient of A
	first := &forwardBackward{Loss: "cross_entropy", Data: []*datum{plain([]int32{1, 2, 3, 4})}}
	if _, err := m.passes(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	err := m.learner.Configure(train.Optimization{AdamW: torch.AdamW{Beta1: 0.9, Beta2: 0.95, Eps: 1e-12}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.learner.Step(0.02); err != nil {
		t.Fatal(err)
	}
	return m
}

// of is a tensor of a list, or of a shape.
func of(values []float64, shape ...int64) *tensor {
	var narrow []float32
	for _, x := range values {
		narrow = append(narrow, float32(x))
	}
	return &tensor{Dense: bytesOf(narrow), DType: dtypeFloat32, Shape: shape}
}

func said(ids []int32) []*chunk { return []*chunk{{Text: &textChunk{Tokens: bytesOf(ids)}}} }

// plain has the next token as the target of each but the last.
func plain(ids []int32) *datum {
	targets := &tensor{Dense: bytesOf(ids[1:]), DType: dtypeInt32}
	return &datum{Chunks: said(ids[:len(ids)-1]), Inputs: map[string]*tensor{"target_tokens": targets}}
}

// result reads what passes gave.
func result(t *testing.T, message any) (loss float64, found []float32) {
	t.Helper()
	var out forwardBackwardOutput
	if err := unmarshal(message.([]byte), &out); err != nil {
		t.Fatal(err)
	}
	for _, record := range out.Records {
		found = append(found, floats(record.Fields["logprobs"].Data)...)
	}
	return out.Metrics["loss:sum"], found
}

func floats(raw []byte) (out []float32) {
	for _, x := range numbers(raw, dtypeFloat32) {
		out = append(out, float32(x))
	}
	return out
}

// token is what a definition reads: log-prob, that of the sampler, advantage.
type token struct{ l, q, a float64 }

func clamp(x, low, high float64) float64 { return min(max(x, low), high) }

// definitions are those of Tinker's documentation, with their derivatives in l.
var definitions = map[string]func(token) (loss, slope float64){
	"importance_sampling": func(x token) (float64, float64) { r := math.Exp(x.l - x.q); return -r * x.a, -r * x.a },
	"ppo": func(x token) (float64, float64) {
		r := math.Exp(x.l - x.q)
		if clipped := clamp(r, 0.9, 1.3) * x.a; clipped < r*x.a {
			return -clipped, 0
		}
		return -r * x.a, -r * x.a
	},
	"cispo": func(x token) (float64, float64) {
		w := clamp(math.Exp(x.l-x.q), 0.9, 1.3)
		return -w * x.l * x.a, -w * x.a
	},
	"dro": func(x token) (float64, float64) {
		return -(x.l*x.a - 0.5*0.3*(x.l-x.q)*(x.l-x.q)), -x.a + 0.3*(x.l-x.q)
	},
}

// Losses and gradients are those of the definitions: the gradient is that of a cross entropy whose weights are the
// definition's derivatives.
func TestLossesAreTheirDefinitions(t *testing.T) {
	s := open(t, nil)
	m := learning(t, s)
	rng := rand.New(rand.NewPCG(1, 2))
	var data []*datum
	for _, n := range []int{9, 4, 17} {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(259)
		}
		data = append(data, plain(ids))
	}
	copy(data[2].Inputs["target_tokens"].Dense[4*3:], bytesOf([]int32{11})) // a target that is not the next token
	message, err := m.passes(t.Context(), &forwardBackward{Loss: "cross_entropy", Data: data, ForwardOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	sum, current := result(t, message)
	want, tokens := 0.0, make([][]token, len(data))
	for i, d := range data {
		for range len(d.Chunks[0].Text.Tokens) / 4 {
			l := float64(current[0])
			tokens[i] = append(tokens[i], token{l, l + 0.4*rng.NormFloat64(), rng.NormFloat64()})
			want, current = want-l, current[1:]
		}
	}
	if math.Abs(sum-want) > 1e-4 || len(current) != 0 {
		t.Errorf("cross entropy %v of %v, %d log-probs too many", sum, want, len(current))
	}
	for name, define := range definitions {
		config := map[string]float64{"clip_low_threshold": 0.9, "clip_high_threshold": 1.3}
		switch name {
		case "importance_sampling":
			config = nil
		case "dro":
			config = map[string]float64{"beta": 0.3}
		}
		agrees(t, m, name, config, data, tokens, func(x token, _ []token) (float64, float64) { return define(x) }, nil)
	}
	ratio := func(of []token) float64 { // over every other token
		sum, n := 0.0, 0.0
		for i := 0; i < len(of); i += 2 {
			sum, n = sum+of[i].l-of[i].q, n+1
		}
		return math.Exp(sum / n)
	}
	agrees(t, m, "gspo", map[string]float64{"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}, data, tokens,
		func(x token, all []token) (float64, float64) {
			r := ratio(all)
			if clipped := clamp(r, 0.9, 1.1) * x.a; clipped < r*x.a {
				return -clipped, 0
			}
			return -r * x.a, -r * x.a
		}, func(i int) float64 { return float64(1 - i%2) })
}

// agrees compares a loss with its definition.
func agrees(t *testing.T, m *model, name string, config map[string]float64, data []*datum, tokens [][]token,
	define func(token, []token) (float64, float64), mask func(i int) float64) {
	t.Helper()
	want := 0.0
	var asked, linear []*datum
	for i, d := range data {
		var old, advantages, weights, masked []float64
		for j, x := range tokens[i] {
			loss, slope := define(x, tokens[i])
			want += loss
			old, advantages, weights = append(old, x.q), append(advantages, x.a), append(weights, -slope)
			if mask != nil {
				masked = append(masked, mask(j))
			}
		}
		targets := d.Inputs["target_tokens"]
		inputs := map[string]*tensor{"target_tokens": targets, "logprobs": of(old), "advantages": of(advantages)}
		if mask != nil {
			inputs["sequence_ratio_mask"] = of(masked)
		}
		asked = append(asked, &datum{Chunks: d.Chunks, Inputs: inputs})
		linear = append(linear, &datum{Chunks: d.Chunks,
			Inputs: map[string]*tensor{"target_tokens": targets, "weights": of(weights)}})
	}
	gradients := m.learner.Gradients()
	kept, err := torch.NewGradients(m.learner.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	defer gradients.Zero()
	message, err := m.passes(t.Context(), &forwardBackward{Loss: name, Numbers: config, Data: asked})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if got, _ := result(t, message); math.Abs(got-want) > 1e-4*max(1, math.Abs(want)) {
		t.Errorf("%s: loss %v, defined %v", name, got, want)
	}
	if err := errors.Join(kept.Add(gradients, 1), gradients.Zero()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.passes(t.Context(), &forwardBackward{Loss: "cross_entropy", Data: linear}); err != nil {
		t.Fatal(err)
	}
	norm, _ := gradients.Norm()
	if err := kept.Add(gradients, -1); err != nil {
		t.Fatal(err)
	}
	if away, err := kept.Norm(); err != nil || away > 1e-4*norm || norm == 0 {
		t.Errorf("%s: gradients are %v apart, of a norm of %v (%v)", name, away, norm, err)
	}
}

// Several targets of a position are each what they would be alone, dense or sparse.
func TestSeveralTargets(t *testing.T) {
	s := open(t, nil)
	m := learning(t, s)
	one := func(targets []float64, weights []float64, shape ...int64) *datum {
		return &datum{Chunks: said([]int32{5, 6, 7}), Inputs: map[string]*tensor{"target_tokens": of(targets, shape...),
			"weights": of(weights, shape...)}}
	}
	run := func(data ...*datum) (float64, []float32) {
		message, err := m.passes(t.Context(), &forwardBackward{Loss: "cross_entropy", Data: data, ForwardOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		return result(t, message)
	}
	loss, got := run(one([]float64{6, 9, 7, 1, 8, 8}, []float64{1, 0.5, 0, 2, 1, -1}, 3, 2))
	first, a := run(one([]float64{6, 7, 8}, []float64{1, 0, 1}, 3))
	second, b := run(one([]float64{9, 1, 8}, []float64{0.5, 2, -1}, 3))
	if want := []float32{a[0], b[0], a[1], b[1], a[2], b[2]}; !slices.Equal(got, want) ||
		math.Abs(loss-first-second) > 1e-5 {
		t.Errorf("together %v %v, alone %v and %v", loss, got, first+second, want)
	}
	d := &datum{Chunks: said([]int32{5, 6, 7}), Inputs: map[string]*tensor{"target_tokens": {DType: dtypeInt32,
		Shape: []int64{3, 2}, Sparse: &csr{bytesOf([]int32{6, 8}), bytesOf([]int64{0, 1, 1, 2}), bytesOf([]int64{0, 1})}}}}
	if _, got := run(d); !slices.Equal(got, []float32{a[0], 0, 0, 0, 0, b[2]}) {
		t.Errorf("sparse %v", got)
	}
}

func TestWhatALossRefuses(t *testing.T) {
	s := open(t, nil)
	m := learning(t, s)
	good := func() *forwardBackward {
		d := plain([]int32{1, 2, 3})
		d.Inputs["logprobs"], d.Inputs["advantages"] = of([]float64{0, 0}), of([]float64{0, 0})
		return &forwardBackward{Loss: "ppo", Numbers: map[string]float64{}, Data: []*datum{d}}
	}
	for name, spoil := range map[string]func(in *forwardBackward, d *datum){
		"unknown loss":     func(in *forwardBackward, _ *datum) { in.Loss = "pppo" },
		"unpublished loss": func(in *forwardBackward, _ *datum) { in.Loss = "stable_reinforce" },
		"unknown key":      func(in *forwardBackward, _ *datum) { in.Numbers["beta"] = 1 },
		"key not finite":   func(in *forwardBackward, _ *datum) { in.Numbers["clip_low_threshold"] = math.NaN() },
		"text": func(in *forwardBackward, _ *datum) {
			in.Config = map[string]*lossValue{"clip_low_threshold": {Text: new("x")}}
		},
		"missing input":     func(_ *forwardBackward, d *datum) { delete(d.Inputs, "advantages") },
		"unknown input":     func(_ *forwardBackward, d *datum) { d.Inputs["mask"] = of([]float64{1, 1}) },
		"short input":       func(_ *forwardBackward, d *datum) { d.Inputs["logprobs"] = of([]float64{1}) },
		"input not finite":  func(_ *forwardBackward, d *datum) { d.Inputs["logprobs"] = of([]float64{0, math.Inf(1)}) },
		"shape not its own": func(_ *forwardBackward, d *datum) { d.Inputs["logprobs"].Shape = []int64{3} },
		"no text":           func(_ *forwardBackward, d *datum) { d.Chunks = append(d.Chunks, &chunk{}) },
		"no tokens":         func(_ *forwardBackward, d *datum) { d.Chunks = nil },
		"too many tokens":   func(_ *forwardBackward, d *datum) { d.Chunks = said(make([]int32, 512)) },
		"token outside":     func(_ *forwardBackward, d *datum) { d.Chunks = said([]int32{1, 259}) },
		"target outside":    func(_ *forwardBackward, d *datum) { d.Inputs["target_tokens"] = of([]float64{-1, 3}) },
		"target no token":   func(_ *forwardBackward, d *datum) { d.Inputs["target_tokens"] = of([]float64{1.5, 3}) },
		"target of 3 axes":  func(_ *forwardBackward, d *datum) { d.Inputs["target_tokens"] = of([]float64{2, 3}, 2, 1, 1) },
		"no targets at all": func(_ *forwardBackward, d *datum) { delete(d.Inputs, "target_tokens") },
	} {
		in := good()
		spoil(in, in.Data[0])
		if _, err := m.passes(t.Context(), in); err == nil || serve.ErrorOf(err).Status != 400 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.passes(t.Context(), good()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if names := slices.Sorted(maps.Keys(losses)); len(names) != 6 {
		t.Errorf("losses %q", names)
	}
}

// Garbage is an error, and small messages make no large tensors.
func FuzzReadForwardBackward(f *testing.F) {
	sparse := &tensor{DType: dtypeFloat32, Shape: []int64{1 << 25, 1 << 25},
		Sparse: &csr{bytesOf([]float32{1}), make([]byte, 24), nil}}
	message, err := marshal(&forwardBackward{Model: "m", Seq: 1, Data: []*datum{{Chunks: said([]int32{1, 2}),
		Inputs: map[string]*tensor{"weights": sparse}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(message)
	f.Fuzz(func(t *testing.T, message []byte) {
		var in forwardBackward
		if unmarshal(message, &in) != nil {
			return
		}
		for _, d := range in.Data {
			_, inputs, err := d.read()
			for _, x := range inputs {
				if err == nil && elements(x.shape) != int64(len(x.values)) {
					t.Errorf("%d values of shape %v", len(x.values), x.shape)
				}
			}
		}
	})
}
