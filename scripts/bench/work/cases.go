package work

import (
	"fmt"
	"slices"
)

// environments are timed, beside RAGEN's where that has them too. Those that start processes or ask networks are left
// out.
var (
	environments = []string{"SimpleSokoban", "LargerSokoban", "FrozenLake", "Bandit", "GaussianBandit", "Countdown",
		"MiniSudoku", "SimpleSudoku", "game_2048", "rubikscube"}
	notOfRAGEN = []string{"GaussianBandit", "Countdown", "MiniSudoku"}
)

// Cases are all rows.
func Cases() []Case { return slices.Concat(ofModels(), ofCommands(), ofEnvironments()) }

// ofModels are the cases of what programs do with a model that they hold.
func ofModels() []Case {
	generate := func(batch int, vllm Floor) Case {
		return Case{Name: fmt.Sprintf("generate/%d", batch), Title: fmt.Sprintf("batch %d", batch), Op: OpGenerate,
			Session: Distinct, Long: batch == 64, Batch: batch, Copies: 1, Prompt: 128, New: 64,
			Peers: map[string]Floor{"transformers": {}, "vllm": vllm, "llama": {Speed: 1}}}
	}
	cases := []Case{
		generate(1, Floor{Speed: 1.6, Memory: 1}),
		generate(4, Floor{Memory: 1}),
		generate(16, Floor{Speed: 1.4, Memory: 1}),
		generate(64, Floor{Speed: 1.4, HalfSpeed: 1.3, Memory: 1}),
		{Name: "generate/shared", Title: "16 of one prompt", Op: OpGenerate, Session: Shared, Batch: 1, Copies: 16,
			Prompt: 128, New: 64, Peers: map[string]Floor{"transformers": {},
				"vllm": {Speed: 2, HalfSpeed: 1.8, Memory: 1}, "llama": {Speed: 1}}},
		{Name: "rollout", Title: "16 episodes × 5 turns", Op: OpRollout, Session: Shared, Long: true, Batch: 16,
			Turns: 5, New: 32, Peers: map[string]Floor{Plain: {}, "transformers": {Speed: 4},
				"vllm": {Speed: 1.5, Memory: 1}, "llama": {Speed: 1}}},
		{Name: "logprobs", Title: "4 × 256", Op: OpLogprobs, Session: Scoring, Rows: 4, Length: 256,
			Peers: map[string]Floor{"transformers": {Speed: 1.25}}},
		{Name: "update/unrelated", Title: "4 × 256 unrelated", Op: OpUpdate, Session: Update, Rows: 4, Length: 256,
			Peers: map[string]Floor{"transformers": {Speed: 1.25, HalfSpeed: 1.4, Memory: 0.6}}},
		{Name: "update/group", Title: "8 replies of 64 to one prompt of 128", Op: OpUpdate, Session: Group, Rows: 8,
			Length: 192, Context: 128, Peers: map[string]Floor{"transformers": {Speed: 1.8, Memory: 0.6}}},
		{Name: "lora/update", Title: "4 × 256, rank 32", Op: OpUpdate, Session: LoRA, Rows: 4, Length: 256, Rank: 32,
			Adapters: 1, Peers: map[string]Floor{"transformers": {Speed: 1}}},
		{Name: "lora/generate", Title: "batch 16, 16 adapters of rank 8", Op: OpGenerate, Session: LoRA, Batch: 16,
			Copies: 1, Prompt: 128, New: 64, Rank: 8, Adapters: 16,
			Peers: map[string]Floor{"transformers": {Speed: 1}}},
		{Name: "grpo", Title: "4 prompts × 8 samples × 64", Op: OpGRPO, Session: GRPO, Long: true, Batch: 4,
			Copies: 8, Prompt: 128, New: 64, Peers: map[string]Floor{"trl": {Speed: 2.5, HalfSpeed: 3}}},
	}
	for _, batch := range []int{1, 4, 16} {
		cases = append(cases, Case{Name: fmt.Sprintf("rewrite/%d", batch), Title: fmt.Sprintf("batch %d", batch),
			Op: OpRewrite, Session: Rewriting, Batch: batch, Copies: 1, New: 64, Peers: map[string]Floor{Plain: {}}})
	}
	return cases
}

// ofCommands are those of the gyre command: its servers and its trainings.
func ofCommands() (cases []Case) {
	for _, clients := range []int{1, 4, 16, 64} {
		floors := map[int]Floor{16: {Speed: 1.4}}
		cases = append(cases, Case{Name: fmt.Sprintf("serve/%d", clients), Title: fmt.Sprintf("clients: %d", clients),
			Op: OpServe, Session: Serving, Long: true, Copies: clients, Prompt: 128, New: 64,
			Peers: map[string]Floor{"vllm": floors[clients]}})
	}
	for _, shard := range []string{"none", "optimizer", "full"} {
		floors := map[string]Floor{"none": {Speed: 0.85}}
		cases = append(cases, Case{Name: "ranks/" + shard, Title: "fsdp.shard = " + shard, Op: OpTrain, Session: Ranks,
			Rows: 8, Length: 256, Shard: shard, Peers: map[string]Floor{OneProcess: floors[shard]}})
	}
	for _, seconds := range []float64{0, 0.55} { // with a synchronous step's 28 % waiting on two cores of a Zen 4
		floors := map[float64]Floor{0: {Speed: 0.97}, 0.55: {Speed: 1.33}}
		cases = append(cases, Case{Name: fmt.Sprintf("waiting/%.2f", seconds), Title: fmt.Sprintf("calls of %.2f s",
			seconds), Op: OpWaiting, Session: Waiting, Long: true, Copies: 32, Turns: 3, Seconds: seconds,
			Peers: map[string]Floor{Synchronous: floors[seconds]}})
	}
	pass := func(what string, tokens, layers int) Case {
		return Case{Name: "passes/" + what, Title: fmt.Sprintf("%d tokens through %d layers", tokens, layers),
			Op: OpPass, Session: Passes, Long: true, Layers: layers, Rows: tokens / 256, Length: 256}
	}
	for _, tokens := range []int{1024, 4096, 16384, 65536} {
		cases = append(cases, pass(fmt.Sprintf("tokens/%d", tokens), tokens, 6))
	}
	for _, layers := range []int{2, 8, 16, 30} {
		cases = append(cases, pass(fmt.Sprintf("layers/%d", layers), 4096, layers))
	}
	return cases
}

func ofEnvironments() (cases []Case) {
	for _, tag := range environments {
		floors := map[string]Floor{CountResets: {Speed: 50}, CountSteps: {Speed: 20}}
		for _, counts := range []string{CountResets, CountSteps} {
			c := Case{Name: "environments/" + tag + "/" + counts, Title: tag + ": " + counts, Op: OpEnvironment,
				Session: Environments, Tag: tag, Counts: counts, Seconds: 0.5}
			if !slices.Contains(notOfRAGEN, tag) {
				c.Peers = map[string]Floor{"ragen": floors[counts]}
			}
			cases = append(cases, c)
		}
	}
	return cases
}
