package report

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

func samples(tokens int, peak int64, seconds ...float64) []Sample {
	var out []Sample
	for _, s := range seconds {
		out = append(out, Sample{Figures: worker.Figures{Seconds: s, Tokens: tokens, PeakBytes: peak},
			Bounds: work.Bounds{Total: 0.5}})
	}
	return out
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{7}, 7}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, expected %v", c.values, got, c.want)
		}
	}
}

// Ratios are taken repeat by repeat: what slows down a whole repeat does not show.
func TestRatioIsPairwise(t *testing.T) {
	a, b := samples(100, 1, 1, 10, 2), samples(100, 1, 2, 20, 4)
	if r := Ratio(a, b, Sample.Speed); !near(r.Median, 2) || !near(r.Min, 2) || !near(r.Max, 2) {
		t.Errorf("ratio is %+v, expected 2 throughout", r)
	}
	if r := Ratio(a, b[:1], Sample.Speed); !near(r.Median, 2) {
		t.Errorf("ratio over the repeat that both have is %+v, expected 2", r)
	}
	if r := Ratio(a, nil, Sample.Speed); !math.IsNaN(r.Median) {
		t.Errorf("ratio to nothing is %+v, expected NaN", r)
	}
}

func TestPhases(t *testing.T) {
	s := Sample{Figures: worker.Figures{Seconds: 3, Tokens: 64, FirstSeconds: 1, LaterTokens: 60},
		Bounds: work.Bounds{First: 0.5, Decode: 1, Total: 1.5}}
	if s.DecodeSpeed() != 30 || s.first() != 0.5 || s.decode() != 0.5 || s.share() != 0.5 {
		t.Errorf("decode speed %v, shares %v, %v, %v: expected 30 and halves", s.DecodeSpeed(), s.share(), s.first(),
			s.decode())
	}
}

func example() *Report {
	return &Report{Date: "2026-01-02", CPU: "Example CPU @ 1GHz", Threads: 2, Model: "m",
		Machine: work.Machine{Bandwidth: 2e10, FLOPS: 1e11},
		Programs: []*Program{{Name: Subject, Versions: map[string]string{"gyre": "1"}}, {Name: "vllm"},
			{Name: "llama", Skipped: "no GGUF"}},
		Cases: []*Case{
			{Case: find("generate/1"), Samples: map[string][]Sample{
				Subject: samples(64, 1e9, 2, 2, 2.1), "vllm": samples(64, 4e9, 4, 4.2, 4)}},
			{Case: find("generate/16"), Failures: map[string]string{"vllm": "out of blocks"},
				Samples: map[string][]Sample{Subject: samples(64, 5e9, 3), "vllm": samples(64, 4e9, 3)}},
		}}
}

func find(name string) work.Case {
	cases := work.Cases()
	return cases[slices.IndexFunc(cases, func(c work.Case) bool { return c.Name == name })]
}

func TestMarkdown(t *testing.T) {
	text := example().Markdown()
	for _, want := range []string{
		"20.0 GB/s", "100 GFLOP/s", "SKIPPED", "no GGUF", "vllm failed at batch 16: out of blocks",
		"2.00 (1.90 … 2.10)", "≥ 1.6 ✓", "≤ 1 ✓", "≥ 1.4 ✗", "≤ 1 ✗",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	missed := example().Missed()
	if len(missed) != 2 ||
		!strings.Contains(missed[0], "generate/16: 1.00 times the speed of vllm, required 1.4") ||
		!strings.Contains(missed[1], "memory") {
		t.Errorf("missed floors are %q, expected speed and memory of generate/16", missed)
	}
}

func TestBaselineIsReadBack(t *testing.T) {
	path := BaselinePath(t.TempDir(), "Intel(R) Xeon(R) Processor @ 2.50GHz", 2)
	if name := filepath.Base(path); name != "intel-xeon-2.50ghz-2-threads.json" {
		t.Errorf("the file is %q", name)
	}
	if _, err := ReadBaseline(path); err == nil || !strings.Contains(err.Error(), "--write-baseline") {
		t.Errorf("a missing baseline gives %v, expected how to make one", err)
	}
	if err := WriteJSON(path, NewBaseline(example())); err != nil {
		t.Fatal(err)
	}
	b, err := ReadBaseline(path)
	if err != nil {
		t.Fatal(err)
	}
	one := b.Cases["generate/1"]
	if b.Threads != 2 || !slices.Equal(one.Shares, []float64{0.25, 0.25, 0.5 / 2.1}) {
		t.Errorf("read back %+v", b)
	}
}

// A floor is that of float32, or on a processor with types of 16 bits of these; on a GPU none is asked.
func TestFloors(t *testing.T) {
	for _, c := range []struct {
		name, program string
		speed, half   float64
		memory        float64
	}{
		{"generate/64", "vllm", 1.4, 1.3, 1},
		{"update/unrelated", "transformers", 1.25, 1.4, 0.6},
		{"generate/4", "vllm", 0, 0, 1},
	} {
		one := samples(64, 1e9, 1)
		result := &Case{Case: find(c.name), Samples: map[string][]Sample{Subject: one, c.program: one}}
		for _, r := range []struct {
			report *Report
			want   [2]float64
		}{{&Report{}, [2]float64{c.speed, c.memory}}, {&Report{BF16: true}, [2]float64{c.half, c.memory}},
			{&Report{Device: "cuda"}, [2]float64{}}} {
			s, ok := r.report.beside(result, c.program)
			if got := [2]float64{s.floor.Speed, s.floor.Memory}; !ok || got != r.want {
				t.Errorf("%s beside %s: floors %v, expected %v", c.name, c.program, got, r.want)
			}
		}
	}
}

// Beside an update in pure bf16, which trains in 16 bits, speed is compared and memory is not.
func TestMemoryOfPureBF16(t *testing.T) {
	sample := func(seconds, bytes float64) []Sample {
		return []Sample{{Figures: worker.Figures{Tokens: 100, Seconds: seconds, PeakBytes: int64(bytes)}}}
	}
	samples := map[string][]Sample{Subject: sample(1, 5e9), "transformers": sample(4, 1e10),
		"transformers/bf16": sample(2, 6e9)}
	for name, lean := range map[string]string{"update/unrelated": "transformers", "logprobs": "transformers/bf16"} {
		c := Case{Case: work.Case{Name: name, Op: strings.Split(name, "/")[0]}, Samples: samples}
		if c.leanest("transformers") != lean || c.fastest("transformers") != "transformers/bf16" {
			t.Errorf("%s: leanest %s, expected %s; fastest %s", name, c.leanest("transformers"), lean,
				c.fastest("transformers"))
		}
	}
}

func TestDeviceIsNamed(t *testing.T) {
	if text := (&Report{Device: "cuda"}).Markdown(); !strings.Contains(text, "Models compute on cuda") {
		t.Errorf("the report does not name the GPU:\n%s", text)
	}
}
