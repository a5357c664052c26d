package report

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

// FloorOf gives the floor of a case beside a program.
func FloorOf(name, program string) Floor { return floors[name][program] }
