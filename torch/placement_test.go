package torch

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// twin is a model with m's weights, computed elsewhere.
func twin(t *testing.T, m *Model, on Placement) *Model {
	t.Helper()
	config := m.Config
	config.Placement = on
	other, err := NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	weights := map[string][]float32{}
	each(t, m, func(name string, tensor *Tensor, _ []int64) {
		values, err := tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		weights[name] = values
	})
	each(t, other, func(name string, tensor *Tensor, _ []int64) {
		if err := tensor.SetFloat32s(weights[name]); err != nil {
			t.Fatal(err)
		}
	})
	if err := other.Touch(); err != nil {
		t.Fatal(err)
	}
	return other
}

func TestDevicesAgree(t *testing.T) {
	for _, device := range []string{"aten", "cuda"} {
		t.Run(device, func(t *testing.T) {
			if gpus := CUDAInfo(); device == "cuda" && strings.HasPrefix(gpus, "none: ") {
				t.Skip(gpus)
			}
			m := tinyModel(t, HeadLM)
			other := twin(t, m, Placement{Device: device, Compute: ComputeF32})
			if line, err := other.Device(); err != nil || !strings.HasPrefix(line, device) || !strings.HasSuffix(line,
				"float32") {
				t.Errorf("device %q, %v", line, err)
			}
			ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
			want, err := m.Logits(ids)
			if err != nil {
				t.Fatal(err)
			}
			got, err := other.Logits(ids)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if math.Abs(float64(got[i]-want[i])) > 1e-4 {
					t.Fatalf("logit %d: got %v, the kernels give %v", i, got[i], want[i])
				}
			}
			greedy := func(m *Model) []int32 {
				e := tinyEngine(t, m, roomy)
				if err := e.Submit(Request{ID: 1, Prompt: ids, Sampling: Sampling{TopP: 1, MaxTokens: 12,
					IgnoreEOS: true}}); err != nil {
					t.Fatal(err)
				}
				return finish(t, e)[1].Tokens
			}
			if a, b := greedy(m), greedy(other); !slices.Equal(a, b) {
				t.Errorf("greedy tokens: got %v, the kernels draw %v", b, a)
			}
			// One update moves both alike.
			step := func(m *Model) []float32 {
				g, err := NewGradients(m)
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				o, err := NewOptimizer(m, AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-4})
				if err != nil {
					t.Fatal(err)
				}
				defer o.Close()
				batch := Pack([][]int32{ids}, nil)
				weights := slices.Repeat([]float32{1}, len(ids))
				if _, err := m.PolicyBackward(batch, PolicyInputs{Weights: weights}, PolicyLoss{Task: NewLoss("nll", nil),
					Temperature: 1}, Terms(g, nil, nil)); err != nil {
					t.Fatal(err)
				}
				if _, err := o.Step(g, 1e-2, 1); err != nil {
					t.Fatal(err)
				}
				logits, err := m.Logits(ids)
				if err != nil {
					t.Fatal(err)
				}
				return logits
			}
			moved, expected := step(other), step(m)
			for i := range expected {
				if math.Abs(float64(moved[i]-expected[i])) > 1e-3 {
					t.Fatalf("after a step, logit %d: got %v, the kernels give %v", i, moved[i], expected[i])
				}
			}
			if slices.Equal(expected, want) {
				t.Error("the step moved nothing")
			}
		})
	}
}

func TestPlacementsThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		on   Placement
		want string
	}{
		{Placement{Device: "gpu"}, "expected cpu, cuda"},
		{Placement{Device: "a name that is far too long"}, "expected cpu, cuda"},
		{Placement{Compute: "int4"}, "expected auto, float32 or bfloat16"},
		{Placement{Device: "cuda:99"}, "cuda:99"},
	} {
		config := tinyConfig(HeadLM)
		config.Placement = c.on
		if _, err := NewModel(config); !errors.Is(err, ErrInvalidArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an invalid argument that says %q", c.on, err, c.want)
		}
	}
}

// auto is the faster type, with the reason; what was chosen stays.
func TestSettled(t *testing.T) {
	set, err := InstructionSetInUse()
	if err != nil || set.Name == "" || !set.RunsHere || !set.InUse || set.Float32 != 0 {
		t.Fatalf("in use is %+v (%v)", set, err)
	}
	if !strings.Contains(BuildInfo(), set.Name) {
		t.Errorf("%s is in use, but the build says %s", set.Name, BuildInfo())
	}
	here := ComputeF32
	if set.BF16IsFaster {
		here = ComputeBF16
	}
	for _, c := range []struct {
		device string
		asked  Compute
		want   Compute
		why    string
	}{
		{"cpu", ComputeF32, ComputeF32, ""}, {"cpu", ComputeBF16, ComputeBF16, ""}, {"cuda:1", ComputeF32, ComputeF32,
			""}, {"", "", "", ""},
		{"cuda", ComputeAuto, ComputeBF16, "GPUs"}, {"aten", ComputeAuto, ComputeF32, "aten"}, {"cpu", ComputeAuto,
			here, set.Name}, {"", ComputeAuto, here, set.Name},
	} {
		got, why, err := Placement{Device: c.device, Compute: c.asked, Frozen: true}.Settled()
		if err != nil || got.Compute != c.want || got.Device != c.device || !got.Frozen ||
			(why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%q, %q: %+v, %q, %v; want %q", c.device, c.asked, got, why, err, c.want)
		}
	}
	for faster, want := range map[bool]string{true: "multiply faster in it", false: "multiply no faster in bfloat16"} {
		if why := (InstructionSet{Name: "abc", BF16IsFaster: faster}).reason(); !strings.Contains(why, "abc") ||
			!strings.Contains(why, want) {
			t.Errorf("the reason is %q, want %q", why, want)
		}
	}
}

// A frozen model in int8 computes what one does whose blocks have the weights that the codes stand for, bit for bit.
func TestInt8IsTheModelOfItsNumbers(t *testing.T) {
	m := tinyModel(t, HeadLM)
	rounded := func(name string, values []float32, shape []int64) {
		if !strings.HasPrefix(name, "model.layers.") || len(shape) != 2 {
			return
		}
		for row := range slices.Chunk(values, int(shape[1])) {
			most := float32(0)
			for _, x := range row {
				most = max(most, float32(math.Abs(float64(x))))
			}
			for i, x := range row {
				row[i] = float32(math.RoundToEven(float64(x/(most/127)))) * (most / 127)
			}
		}
	}
	frozen := func(on Placement, change func(name string, values []float32, shape []int64)) *Model {
		config := m.Config
		config.Placement, config.Frozen = on, true
		other, err := NewModel(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		weights, number := map[string][]float32{}, 0
		each(t, m, func(name string, tensor *Tensor, shape []int64) {
			values, err := tensor.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			change(name, values, shape)
			weights[name] = values
		})
		each(t, other, func(name string, tensor *Tensor, _ []int64) {
			if err := tensor.SetFloat32s(weights[name]); err != nil {
				t.Fatal(err)
			}
			number++
		})
		if err := other.Freeze(number); err != nil {
			t.Fatal(err)
		}
		return other
	}
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	for _, compute := range []Compute{ComputeF32, ComputeBF16} {
		logits := func(m *Model) []float32 {
			all, err := m.Logits(ids)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		as := func(string, []float32, []int64) {}
		got := logits(frozen(Placement{Compute: compute, Int8: true}, as))
		if !slices.Equal(got, logits(frozen(Placement{Compute: compute}, rounded))) {
			t.Errorf("%s: int8 is not the model of its numbers", compute)
		}
		if slices.Equal(got, logits(frozen(Placement{Compute: compute}, as))) {
			t.Errorf("%s: int8 rounds nothing", compute)
		}
	}
	for _, on := range []Placement{{Int8: true}, {Device: "aten", Frozen: true, Int8: true}} {
		config := m.Config
		config.Placement = on
		if refused, err := NewModel(config); err == nil || !strings.Contains(err.Error(), "model.base_dtype") {
			t.Errorf("%+v: error %v", on, err)
			refused.Close()
		}
	}
}
