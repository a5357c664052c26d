package report

import (
	"math"
	"slices"
	"strings"

	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// Subject is the program that the others are compared with.
const Subject = "gyre"

// Float32 is the type in which all programs compute the same. In another type a program is an entry of its own: "vllm/bf16".
const Float32 = "f32"

// Types are those that a program is measured in: float32 and what it has in 16 bits.
func Types(program string) []string {
	switch program {
	case "transformers":
		return []string{Float32, "autocast", "bf16"}
	case "llama":
		return []string{Float32, "f16"}
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

// Base is the program of an entry, Type its type.
func Base(entry string) string {
	base, _, _ := strings.Cut(entry, "/")
	return base
}

// Type is described with Base.
func Type(entry string) string {
	if _, dtype, ok := strings.Cut(entry, "/"); ok {
		return dtype
	}
	return Float32
}

// Sample is one measured task.
type Sample struct {
	Repeat int `json:"repeat"` // from 1; programs are compared repeat by repeat
	worker.Figures
	Machine work.Machine `json:"machine"`          // measured just before this repeat
	Bounds  work.Bounds  `json:"bounds"`           // on the report's machine: the best measured
	Nearby  work.Bounds  `json:"nearby_bounds"`    // on the machine as it was before this repeat
	Others  float64      `json:"others,omitempty"` // processors that other programs kept busy meanwhile, on average
}

// Speed is in tokens per second.
func (s Sample) Speed() float64 { return float64(s.Tokens) / s.Seconds }

// DecodeSpeed is in tokens per second once every sequence has its first token; 0 where that was not measured.
func (s Sample) DecodeSpeed() float64 {
	if s.LaterTokens == 0 {
		return 0
	}
	return float64(s.LaterTokens) / (s.Seconds - s.FirstSeconds)
}

// Share is how much of the time the least time is.
func (s Sample) Share() float64 { return s.Bounds.Total / s.Seconds }

// FirstShare and DecodeShare are the same for the phases of a generation; 0 where they were not measured.
func (s Sample) FirstShare() float64 {
	if s.LaterTokens == 0 {
		return 0
	}
	return s.Bounds.First / s.FirstSeconds
}

// DecodeShare is described with FirstShare.
func (s Sample) DecodeShare() float64 {
	if s.LaterTokens == 0 {
		return 0
	}
	return s.Bounds.Decode / (s.Seconds - s.FirstSeconds)
}

// Case is the results of one case.
type Case struct {
	Name     string              `json:"name"`
	Title    string              `json:"title"`
	Op       string              `json:"op"`
	Samples  map[string][]Sample `json:"samples"` // by program
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

// fastest and leanest are a program's best entries. Where weights are trained, pure bf16 is not asked how little memory it takes: it keeps
// them, their gradients and the optimizer's sums in 16 bits, so that most of a step is lost to rounding.
func (c Case) fastest(program string) string { return c.best(program, Types(program), Sample.Speed) }
func (c Case) leanest(program string) string {
	types := Types(program)
	if program != Subject && strings.HasPrefix(c.Name, "update/") {
		types = slices.DeleteFunc(types, func(dtype string) bool { return dtype == "bf16" })
	}
	return c.best(program, types, func(s Sample) float64 { return -peak(s) })
}

// Program is one that was to take part.
type Program struct {
	Name     string            `json:"name"`
	Versions map[string]string `json:"versions,omitempty"`
	Notes    []string          `json:"notes,omitempty"`
	Skipped  string            `json:"skipped,omitempty"` // why it did not
}

// Analysis is a row of the gradient analysis benchmark.
type Analysis struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
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
	Others   float64      `json:"others"`             // processors that other programs kept busy, on average over the samples
	Programs []Program    `json:"programs"`
	Cases    []Case       `json:"cases"`
	Analysis []Analysis   `json:"analysis,omitempty"`
	// Environments are timed apart: they need no model.
	Environments []Environment `json:"environments,omitempty"`
	Ranks        *Ranks        `json:"ranks,omitempty"`
}

// OnDevice reports whether models compute elsewhere than in the CPU's kernels: the machine's measured peaks, and the floors, are those of the CPU.
func (r *Report) OnDevice() bool { return r.Device != "" && r.Device != "cpu" }

// Program finds or adds a program.
func (r *Report) Program(name string) *Program {
	for i := range r.Programs {
		if r.Programs[i].Name == name {
			return &r.Programs[i]
		}
	}
	r.Programs = append(r.Programs, Program{Name: name, Versions: map[string]string{}})
	return &r.Programs[len(r.Programs)-1]
}

// Shares are Gyre's shares in a type, sample by sample, of what the machine allowed at the time: other programs slow down both.
func (r *Report) Shares(name, dtype string) []float64 {
	return r.own(name, dtype, func(s Sample) float64 { return s.Nearby.Total / s.Seconds })
}

// Peaks are the bytes that Gyre held at most, sample by sample.
func (r *Report) Peaks(name, dtype string) []float64 { return r.own(name, dtype, peak) }

func (r *Report) own(name, dtype string, figure func(Sample) float64) []float64 {
	var values []float64
	for _, c := range r.Cases {
		if c.Name == name {
			for _, s := range c.Samples[In(Subject, dtype)] {
				values = append(values, figure(s))
			}
		}
	}
	return values
}

// Floor is what Gyre must reach beside another program: at least so many times its speed, at most so many times its peak memory. 0
// asks for nothing.
type Floor struct{ Speed, Memory float64 }

// floors by case and program. They were set for float32 on two cores of a Xeon with AVX-512.
var floors = map[string]map[string]Floor{
	"generate/1":       {"vllm": {1.6, 1}, "llama": {Speed: 1}},
	"generate/4":       {"vllm": {Memory: 1}, "llama": {Speed: 1}},
	"generate/16":      {"vllm": {1.4, 1}, "llama": {Speed: 1}},
	"generate/64":      {"vllm": {1.4, 1}, "llama": {Speed: 1}},
	"generate/shared":  {"vllm": {2, 1}, "llama": {Speed: 1}},
	"rollout":          {"transformers": {Speed: 4}, "vllm": {1.5, 1}, "llama": {Speed: 1}},
	"logprobs":         {"transformers": {Speed: 1.25}},
	"update/unrelated": {"transformers": {1.25, 0.6}},
	"update/group":     {"transformers": {1.8, 0.6}},
	"grpo":             {"trl": {Speed: 2.5}},
}

// halfSpeeds take the place of some of their speeds where the processor multiplies numbers of 16 bits, which nearly doubles the programs that use it.
var halfSpeeds = map[string]map[string]float64{
	"generate/64":      {"vllm": 1.3},
	"generate/shared":  {"vllm": 1.8},
	"update/unrelated": {"transformers": 1.4},
	"grpo":             {"trl": 3},
}

// limits are what measurements of gradients may cost, in plain updates of the batch.
var limits = map[string]float64{"Components/3 parts": 2.2, "Components/8 parts": 4.5}

// FloorOf gives the floor of a case beside a program: Gyre at its best type against the program at its best.
func (r *Report) FloorOf(name, program string) Floor {
	if r.OnDevice() {
		return Floor{}
	}
	floor := floors[name][program]
	if speed, ok := halfSpeeds[name][program]; ok && r.BF16 {
		floor.Speed = speed
	}
	return floor
}
