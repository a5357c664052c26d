// Package report holds what the benchmark has measured, writes it as tables, says which floors Gyre missed, and
// decides whether Gyre has become slower than a baseline says.
package report

import (
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// Subject is the program that the others are compared with.
const Subject = "gyre"

// Float32 is the type in which all programs compute the same. In another type a program is an entry of its own:
// "vllm/bf16".
const Float32 = "f32"

// Types are those that a program is measured in: float32 and what it has in 16 bits.
func Types(program string) []string {
	switch program {
	case "transformers":
		return []string{Float32, "autocast", "bf16"}
	case "llama":
		return []string{Float32, "f16"}
	case "ragen":
		return []string{Float32}
	}
	return []string{Float32, "bf16"}
}

// In names a program in a type.
func In(program, dtype string) string {
	if dtype == Float32 {
		return program
	}
	return program + "/" + dtype
}

// Split gives the program and the type of an entry.
func Split(entry string) (program, dtype string) {
	program, dtype, found := strings.Cut(entry, "/")
	if !found {
		dtype = Float32
	}
	return program, dtype
}

// Sample is one measured task.
type Sample struct {
	worker.Figures
	Machine work.Machine `json:"machine"`          // measured just before this repeat
	Bounds  work.Bounds  `json:"bounds"`           // on this machine
	Others  float64      `json:"others,omitempty"` // processors that other programs kept busy meanwhile, on average
}

// Speed is in tokens per second.
func (s Sample) Speed() float64 { return float64(s.Tokens) / s.Seconds }

// DecodeSpeed is in tokens per second once every sequence has its first token; 0 where that was not measured.
func (s Sample) DecodeSpeed() float64 {
	return s.phase(float64(s.LaterTokens) / (s.Seconds - s.FirstSeconds))
}

// share is how much of the time is the least time on the machine as it was: other programs slow down both. first and
// decode are that of a generation's phases, 0 where those were not measured.
func (s Sample) share() float64 { return s.Bounds.Total / s.Seconds }

func (s Sample) first() float64 { return s.phase(s.Bounds.First / s.FirstSeconds) }

func (s Sample) decode() float64 { return s.phase(s.Bounds.Decode / (s.Seconds - s.FirstSeconds)) }

// attainable is the share that is left to products where they wait for exponentials.
func (s Sample) attainable() float64 { return s.Bounds.Attainable }

func (s Sample) phase(share float64) float64 {
	if s.LaterTokens == 0 {
		return 0
	}
	return share
}

// peak is a sample's peak memory in bytes.
func (s Sample) peak() float64 { return float64(s.PeakBytes) }

// Case is the results of one case.
type Case struct {
	work.Case
	Samples  map[string][]Sample `json:"samples"` // by program, one for every repeat
	Failures map[string]string   `json:"failures,omitempty"`
}

// best is a program's entry of the highest median figure in these types, "" where it has no samples.
func (c Case) best(program string, types []string, figure func(Sample) float64) string {
	name, highest := "", math.Inf(-1)
	for _, dtype := range types {
		entry := In(program, dtype)
		if v := Over(c.Samples[entry], figure).Median; len(c.Samples[entry]) > 0 && (name == "" || v > highest) {
			name, highest = entry, v
		}
	}
	return name
}

// fastest is the type in which a program is fastest.
func (c Case) fastest(program string) string { return c.best(program, Types(program), Sample.Speed) }

// leanest is the type in which a program takes least memory. Where weights are trained, a peer's pure bf16 does not
// count: it keeps weights, gradients and the optimizer's sums in 16 bits, so that most of a step is lost to rounding.
func (c Case) leanest(program string) string {
	types := Types(program)
	if program != Subject && c.Op == work.OpUpdate {
		types = slices.DeleteFunc(types, func(dtype string) bool { return dtype == "bf16" })
	}
	return c.best(program, types, func(s Sample) float64 { return -s.peak() })
}

// Program is one that was to take part.
type Program struct {
	Name     string            `json:"name"`
	Versions map[string]string `json:"versions,omitempty"`
	Notes    []string          `json:"notes,omitempty"`
	Skipped  string            `json:"skipped,omitempty"` // why it did not
}

// Note adds a remark, once.
func (p *Program) Note(text string) {
	if !slices.Contains(p.Notes, text) {
		p.Notes = append(p.Notes, text)
	}
}

// Report is a whole run.
type Report struct {
	Date     string       `json:"date"`
	CPU      string       `json:"cpu"`
	Threads  int          `json:"threads"`
	BF16     bool         `json:"bf16,omitempty"` // the processor multiplies numbers of 16 bits
	Model    string       `json:"model"`
	Device   string       `json:"device,omitempty"`   // that models compute on, cpu where empty
	Machine  work.Machine `json:"machine"`            // the best of all measurements
	Libtorch float64      `json:"libtorch,omitempty"` // libtorch's own peak in FLOP/s, where transformers took part
	// processors that other programs kept busy, on average over the samples
	Others   float64    `json:"others"`
	Programs []*Program `json:"programs"`
	Cases    []*Case    `json:"cases"`
}

// OnDevice reports whether models compute elsewhere than in the CPU's kernels: the measured peaks and the floors are
// those of the CPU.
func (r *Report) OnDevice() bool { return r.Device != "" && r.Device != "cpu" }

// Program finds or adds a program.
func (r *Report) Program(name string) *Program {
	if i := slices.IndexFunc(r.Programs, func(p *Program) bool { return p.Name == name }); i >= 0 {
		return r.Programs[i]
	}
	added := &Program{Name: name, Versions: map[string]string{}}
	r.Programs = append(r.Programs, added)
	return added
}

// Case finds or adds the results of a case.
func (r *Report) Case(c work.Case) *Case {
	if i := slices.IndexFunc(r.Cases, func(known *Case) bool { return known.Name == c.Name }); i >= 0 {
		return r.Cases[i]
	}
	added := &Case{Case: c, Samples: map[string][]Sample{}, Failures: map[string]string{}}
	r.Cases = append(r.Cases, added)
	return added
}

// Own is a figure of Gyre's samples of a case in a type.
func (r *Report) Own(name, dtype string, figure func(Sample) float64) []float64 {
	var values []float64
	for _, s := range r.Case(work.Case{Name: name}).Samples[In(Subject, dtype)] {
		values = append(values, figure(s))
	}
	return values
}

// Finish sums up what other programs did meanwhile.
func (r *Report) Finish() {
	var others []float64
	for _, c := range r.Cases {
		for _, samples := range c.Samples {
			for _, s := range samples {
				others = append(others, s.Others)
			}
		}
	}
	r.Others = statistics.Sum(others) / float64(max(len(others), 1))
}

// Extent is the middle and the ends of some values; NaN where there are none.
type Extent struct{ Median, Min, Max float64 }

func extent(values []float64) Extent {
	if len(values) == 0 {
		return Extent{math.NaN(), math.NaN(), math.NaN()}
	}
	return Extent{median(values), slices.Min(values), slices.Max(values)}
}

// median of no values is NaN.
func median(values []float64) float64 { return statistics.Quantile(0.5, values) }

// Over is the extent of a figure over samples; values of 0 were not measured.
func Over(samples []Sample, figure func(Sample) float64) Extent {
	var values []float64
	for _, s := range samples {
		if v := figure(s); v != 0 {
			values = append(values, v)
		}
	}
	return extent(values)
}

// Ratio is the extent of figure(a)/figure(b), repeat by repeat, over those that both have.
func Ratio(a, b []Sample, figure func(Sample) float64) Extent {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if v := figure(b[i]); v != 0 {
			ratios = append(ratios, figure(a[i])/v)
		}
	}
	return extent(ratios)
}
