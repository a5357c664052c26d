package report

import (
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// Subject is the program that the others are compared with.
const Subject = "gyre"

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
	Model    string       `json:"model"`
	Machine  work.Machine `json:"machine"`            // the best of all measurements
	Libtorch float64      `json:"libtorch,omitempty"` // libtorch's own peak in FLOP/s, where transformers took part
	Others   float64      `json:"others"`             // processors that other programs kept busy, on average over the samples
	Programs []Program    `json:"programs"`
	Cases    []Case       `json:"cases"`
	Analysis []Analysis   `json:"analysis,omitempty"`
	// Environments are timed apart: they need no model.
	Environments []Environment `json:"environments,omitempty"`
}

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

// Shares are Gyre's shares, sample by sample, of what the machine allowed at the time: other programs slow down both.
func (r *Report) Shares(name string) []float64 {
	var shares []float64
	for _, c := range r.Cases {
		if c.Name == name {
			for _, s := range c.Samples[Subject] {
				shares = append(shares, s.Nearby.Total/s.Seconds)
			}
		}
	}
	return shares
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

// limits are what measurements of gradients may cost, in plain updates of the batch.
var limits = map[string]float64{"Components/3 parts": 2.2, "Components/8 parts": 4.5}

// FloorOf gives the floor of a case beside a program.
func FloorOf(name, program string) Floor { return floors[name][program] }
