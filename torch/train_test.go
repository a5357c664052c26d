package torch

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func newGradients(t *testing.T, m *Model) *Gradients {
	t.Helper()
	g, err := NewGradients(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func sample() (Batch, PolicyInputs) {
	b := Pack([][]int32{{1, 2, 3, 4, 5}, {6, 7, 8}}, nil)
	return b, PolicyInputs{
		OldLogprobs: []float32{0, -3, -2.5, -3.2, -2.9, 0, -3.1, -2.8},
		Advantages:  []float32{0, 1, -1, 0.5, 2, 0, -0.3, 1},
		RefLogprobs: []float32{0, -3.1, -2.6, -3, -2.9, 0, -3, -2.9},
		Weights:     slices.Repeat([]float32{1. / 6}, 8),
	}
}

var ppo = PolicyLoss{Task: NewLoss("ppo", nil), Temperature: 1,
	EntropyCoef: 0.01, KL: KLK3,
	KLCoef: 0.1}

// The log-ratios that actor/ppo_kl averages are clamped to ±20 one by one, as verl's are.
func TestLogRatiosAreClamped(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b, in := sample()
	found, err := m.Logprobs(b, 1)
	if err != nil {
		t.Fatal(err)
	}
	in.OldLogprobs = slices.Clone(found)
	want, shifts := 0.0, []float32{0, 19.5, -19.5, 25, -500, 0, 1, 20.5}
	for i, shift := range shifts { // the rows of first tokens are not policy tokens
		in.OldLogprobs[i] += shift
		if i != 0 && i != 5 {
			want += min(max(float64(in.OldLogprobs[i])-float64(found[i]), -20), 20)
		}
	}
	stats, err := m.PolicyBackward(b, in, ppo, Terms(nil, nil, nil))
	if err != nil || math.Abs(stats.LogRatio-want) > 1e-9 || math.Abs(want-21) > 1e-4 {
		t.Errorf("log-ratios sum to %v (%v), want %v", stats.LogRatio, err, want)
	}
}

func TestTermGradientsSumToTheWhole(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b, in := sample()
	in.LogprobsOut = make([]float32, len(b.IDs))
	task, entropy, kl, all := newGradients(t, m), newGradients(t, m), newGradients(t, m), newGradients(t, m)
	stats, err := m.PolicyBackward(b, in, ppo, Terms(task, entropy, kl))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.PolicyBackward(b, in, ppo, Terms(all, all, all)); err != nil {
		t.Fatal(err)
	}
	if c := stats.Terms; stats.Tokens != 6 || c[Task].Loss == 0 || c[Entropy].Loss >= 0 || c[KL].Loss <= 0 {
		t.Errorf("stats %+v", stats)
	}
	found, err := m.Logprobs(b, 1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, in.LogprobsOut) {
		t.Error("training and scoring disagree about the log-probs")
	}
	for _, g := range []*Gradients{task, entropy, kl} {
		if err := all.Add(g, -1); err != nil {
			t.Fatal(err)
		}
	}
	rest, err := all.Norm()
	if err != nil {
		t.Fatal(err)
	}
	whole, parts, err := task.Dot(task)
	if err != nil {
		t.Fatal(err)
	}
	if rest > 1e-5*math.Sqrt(whole) {
		t.Errorf("terms leave %v of %v", rest, math.Sqrt(whole))
	}
	var sum float64
	for _, p := range parts {
		sum += p
	}
	if sum != whole || len(parts) != len(weights(t, m)) {
		t.Errorf("per-parameter products sum to %v, want %v", sum, whole)
	}
}

// Rewards in parts: each has its own advantages and its own gradient, beside the usual terms and from the same forward
// pass.
func TestTermsOfARewardAddUp(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b, in := sample()
	loss := ppo
	loss.Task = NewLoss("ppo", map[string]float64{"clip_low": 1, "clip_high": 1e6, "clip_dual": 0}) // without clips the loss is linear in the advantages
	correct, format := make([]float32, len(b.IDs)), make([]float32, len(b.IDs))
	for i, a := range in.Advantages {
		correct[i], format[i] = 0.75*a, 0.25*a
	}
	task, first, second := newGradients(t, m), newGradients(t, m), newGradients(t, m)
	terms := append(Terms(task, nil, nil),
		Term{Name: "correctness", Advantages: correct, Into: first},
		Term{Name: "format", Advantages: format, Into: second},
		Term{Name: "format, unweighted", Advantages: format, Weights: slices.Repeat([]float32{1}, len(b.IDs))})
	stats, err := m.PolicyBackward(b, in, loss, terms)
	if err != nil {
		t.Fatal(err)
	}
	c := stats.Terms
	if len(c) != 6 || math.Abs(c["correctness"].Loss+c["format"].Loss-c[Task].Loss) > 1e-6 ||
		math.Abs(c["format, unweighted"].Loss-6*c["format"].Loss) > 1e-6 {
		t.Errorf("stats %+v", c)
	}
	whole, err := task.Norm()
	if err != nil {
		t.Fatal(err)
	}
	if norm, err := second.Norm(); err != nil || math.Abs(norm-0.25*whole) > 1e-5*whole {
		t.Errorf("a quarter of the reward has a gradient of norm %v of %v (%v)", norm, whole, err)
	}
	for _, part := range []*Gradients{first, second} {
		if err := task.Add(part, -1); err != nil {
			t.Fatal(err)
		}
	}
	if rest, err := task.Norm(); err != nil || rest > 1e-5*whole {
		t.Errorf("the parts leave %v of %v (%v)", rest, whole, err)
	}
	for what, bad := range map[string][]Term{
		"a name twice":      {{Name: "format"}, {Name: "format"}},
		"short advantages":  {{Name: "format", Advantages: format[1:]}},
		"an unknown term":   {{Name: "format", Kind: 7}},
		"no advantages":     {{Name: "format", Advantages: nil}},
		"gradients of none": {{Name: "format", Into: new(Gradients)}},
	} {
		in := in
		if what == "no advantages" {
			in.Advantages = nil
		}
		if _, err := m.PolicyBackward(b, in, loss, bad); !errors.Is(err, ErrInvalidArgument) && !errors.Is(err,
			ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestInputsMustFitTheBatch(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b, in := sample()
	broken := in
	broken.Advantages = broken.Advantages[:3]
	if _, err := m.PolicyBackward(b, broken, ppo, Terms(nil, nil, nil)); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("short advantages: %v", err)
	}
	broken = in
	broken.RefLogprobs = nil
	if _, err := m.PolicyBackward(b, broken, ppo, Terms(nil, nil, nil)); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("no reference: %v", err)
	}
	critic := tinyModel(t, HeadValue)
	g := newGradients(t, critic)
	if _, err := m.PolicyBackward(b, in, ppo, Terms(g, nil, nil)); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("gradients of another model: %v", err)
	}
}

func TestOptimizerLowersTheLoss(t *testing.T) {
	m := tinyModel(t, HeadLM)
	o, err := NewOptimizer(m, AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	g := newGradients(t, m)
	b, in := sample()
	nll := PolicyLoss{Task: NewLoss("nll", nil), Temperature: 1}
	var losses []float64
	for range 20 {
		if err := g.Zero(); err != nil {
			t.Fatal(err)
		}
		stats, err := m.PolicyBackward(b, PolicyInputs{Weights: in.Weights}, nll, Terms(g, nil, nil))
		if err != nil {
			t.Fatal(err)
		}
		losses = append(losses, stats.Terms[Task].Loss)
		norm, err := g.Norm()
		if err != nil {
			t.Fatal(err)
		}
		result, err := o.Step(g, 0.02, 1)
		if err != nil || !result.Applied || result.GradNorm != norm {
			t.Fatalf("step: %+v, %v (norm %v)", result, err, norm)
		}
	}
	if last := losses[len(losses)-1]; last > losses[0]/2 {
		t.Errorf("loss went from %v to %v", losses[0], last)
	}
	if o.Steps() != 20 {
		t.Errorf("%d steps", o.Steps())
	}
}

func TestOptimizerStateResumes(t *testing.T) {
	m := tinyModel(t, HeadLM)
	config := AdamW{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}
	b, in := sample()
	step := func(m *Model, o *Optimizer) {
		t.Helper()
		g := newGradients(t, m)
		if _, err := m.PolicyBackward(b, in, ppo, Terms(g, g, g)); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Step(g, 0.01, 1); err != nil {
			t.Fatal(err)
		}
	}
	open := func(m *Model) *Optimizer {
		t.Helper()
		o, err := NewOptimizer(m, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Close() })
		return o
	}
	o := open(m)
	step(m, o)
	step(m, o)

	copied := twin(t, m, m.Config.Placement)
	resumed := open(copied)
	for i := range weights(t, m) {
		for _, which := range []Moment{FirstMoment, SecondMoment} {
			from, err := o.Shard(which, i)
			if err != nil {
				t.Fatal(err)
			}
			to, err := resumed.Shard(which, i)
			if err != nil {
				t.Fatal(err)
			}
			values, err := from.Tensor.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			if err := to.Tensor.SetFloat32s(values); err != nil {
				t.Fatal(err)
			}
			from.Tensor.Close()
			to.Tensor.Close()
		}
	}
	if err := resumed.SetSteps(o.Steps()); err != nil {
		t.Fatal(err)
	}
	step(m, o)
	step(copied, resumed)
	if !slices.EqualFunc(weights(t, m), weights(t, copied), slices.Equal) {
		t.Error("a resumed optimizer takes another step")
	}
}

func TestValueBackwardLearnsTheReturns(t *testing.T) {
	critic := tinyModel(t, HeadValue)
	o, err := NewOptimizer(critic, AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	g := newGradients(t, critic)
	b, in := sample()
	values := make([]float32, len(b.IDs))
	var first, last ValueStats
	for i := range 30 {
		if err := g.Zero(); err != nil {
			t.Fatal(err)
		}
		last, err = critic.ValueBackward(b, ValueInputs{Returns: in.Advantages, Weights: in.Weights, ValuesOut: values},
			g)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = last
			again, err := critic.Values(b)
			if err != nil || !slices.Equal(again, values) {
				t.Errorf("Values gives %v, the training forward %v (%v)", again, values, err)
			}
		}
		if _, err := o.Step(g, 0.02, 1); err != nil {
			t.Fatal(err)
		}
	}
	if last.Loss > first.Loss/2 {
		t.Errorf("loss went from %v to %v", first.Loss, last.Loss)
	}
}

func TestRecomputeGivesTheSameGradients(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b, in := sample()
	gradient := func() *Gradients {
		g := newGradients(t, m)
		if _, err := m.PolicyBackward(b, in, ppo, Terms(g, g, g)); err != nil {
			t.Fatal(err)
		}
		return g
	}
	kept := gradient()
	if err := m.SetRecompute(true); err != nil {
		t.Fatal(err)
	}
	recomputed := gradient()
	if err := kept.Add(recomputed, -1); err != nil {
		t.Fatal(err)
	}
	if norm, err := kept.Norm(); err != nil || norm != 0 {
		t.Errorf("gradients differ by %v (%v)", norm, err)
	}
}

// A model has no divergence from itself over its likeliest tokens, and a support that does not fit is refused.
func TestSupport(t *testing.T) {
	m := tinyModel(t, HeadLM)
	b, in := sample()
	logprobs, support, err := m.Likeliest(b, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	found, err := m.Logprobs(b, 1)
	if err != nil || !slices.Equal(found, logprobs) || len(support.IDs) != 18 || len(support.Logprobs) != 24 {
		t.Errorf("log-probs %v, want %v; %v (%v)", logprobs, found, support, err)
	}
	in.RefLogprobs, in.Support = nil, support
	loss := ppo
	loss.KL = KLSupport
	stats, err := m.PolicyBackward(b, in, loss, Terms(nil, nil, nil))
	if err != nil || math.Abs(stats.Terms[KL].Value) > 1e-6 {
		t.Errorf("a divergence of %v from itself (%v)", stats.Terms[KL].Value, err)
	}
	for _, bad := range []Support{{}, {K: 2, IDs: support.IDs, Logprobs: support.Logprobs},
		{K: 3, IDs: support.IDs, Logprobs: support.Logprobs[1:]}} {
		in.Support = bad
		if _, err := m.PolicyBackward(b, in, loss, Terms(nil, nil, nil)); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, _, err := m.Likeliest(b, 1, int(m.Config.VocabSize)+1); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("more tokens than there are: %v", err)
	}
}

// Other targets than the ids are scored and trained as if each stood in its place.
func TestTargets(t *testing.T) {
	m := tinyModel(t, HeadLM)
	ids, targets := []int32{1, 2, 3, 4, 5}, []int32{0, 7, 3, 9, 1}
	b := Pack([][]int32{ids}, nil)
	b.Targets = targets
	found, err := m.Logprobs(b, 1)
	if err != nil {
		t.Fatal(err)
	}
	likelihood := PolicyLoss{Task: NewLoss("nll", nil), Temperature: 1}
	whole, parts := newGradients(t, m), newGradients(t, m)
	in := PolicyInputs{Weights: []float32{0, 0.5, 1, -1, 2}}
	stats, err := m.PolicyBackward(b, in, likelihood, []Term{{Name: Task, Kind: TermTask, Into: whole}})
	if err != nil {
		t.Fatal(err)
	}
	loss := 0.0
	for i := 1; i < len(ids); i++ {
		one := Pack([][]int32{append(slices.Clone(ids[:i]), targets[i])}, [][]bool{append(make([]bool, i), true)})
		alone, err := m.Logprobs(one, 1)
		if err != nil || alone[i] != found[i] {
			t.Errorf("target %d: %v, in its place %v (%v)", i, found[i], alone[i], err)
		}
		weights := make([]float32, i+1)
		weights[i] = in.Weights[i]
		part, err := m.PolicyBackward(one, PolicyInputs{Weights: weights}, likelihood,
			[]Term{{Name: Task, Kind: TermTask, Into: parts}})
		if err != nil {
			t.Fatal(err)
		}
		loss += part.Terms[Task].Loss
	}
	if math.Abs(loss-stats.Terms[Task].Loss) > 1e-6 {
		t.Errorf("loss %v, of the parts %v", stats.Terms[Task].Loss, loss)
	}
	norm, _ := whole.Norm()
	if err := whole.Add(parts, -1); err != nil {
		t.Fatal(err)
	}
	if away, err := whole.Norm(); err != nil || away > 1e-5*norm || norm == 0 {
		t.Errorf("gradients are %v apart, of a norm of %v (%v)", away, norm, err)
	}
	for _, bad := range [][]int32{{0, 1}, {0, 1, 2, 3, 1 << 20}, {0, -1, 0, 0, 0}} {
		b.Targets = bad
		if _, err := m.Logprobs(b, 1); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("targets %v: %v", bad, err)
		}
	}
}

// A configured optimizer goes on as one that had the hyper-parameters from the start.
func TestOptimizerIsConfigured(t *testing.T) {
	want := AdamW{Beta1: 0.8, Beta2: 0.95, Eps: 1e-10, WeightDecay: 0.1}
	b, in := sample()
	var weights [2][]float32
	for i, first := range []AdamW{want, {Beta1: 0.1, Beta2: 0.2, Eps: 1}} {
		m := tinyModel(t, HeadLM)
		o, err := NewOptimizer(m, first)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		g := newGradients(t, m)
		if _, err := m.PolicyBackward(b, in, ppo, Terms(g, g, g)); err != nil {
			t.Fatal(err)
		}
		if err := o.Configure(want); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Step(g, 0.01, 0); err != nil {
			t.Fatal(err)
		}
		parameters, err := m.Parameters()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parameters {
			values, err := p.Tensor.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			weights[i] = append(weights[i], values...)
		}
		CloseParameters(parameters)
	}
	if !slices.Equal(weights[0], weights[1]) {
		t.Error("the weights differ")
	}
}
