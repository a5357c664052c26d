package rollout

import (
	"context"
	"math/rand/v2"
	"reflect"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// policy is a random two-layer model over the bytes of tokenizer.
func policy(t *testing.T) *torch.Model {
	t.Helper()
	model, err := torch.NewModel(torch.ModelConfig{
		Family: torch.Qwen2, Head: torch.HeadLM, VocabSize: 258, HiddenSize: 32, IntermediateSize: 48, NumLayers: 2,
		NumHeads:   4,
		NumKVHeads: 2, HeadDim: 8, MaxPositions: 4096, RMSNormEps: 1e-6, RopeTheta: 10000, QKVBias: true,
		TieEmbeddings: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	defer torch.CloseParameters(parameters)
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			values[i] = float32(rng.NormFloat64()) / 4
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := model.Touch(); err != nil {
		t.Fatal(err)
	}
	return model
}

// TestEngineEpisodesAreExact plays with the real engine: what it says of its tokens is what training would compute, to
// the last bit, over several turns with shared keys and values or without, and however many sequences decode together.
func TestEngineEpisodesAreExact(t *testing.T) {
	model := policy(t)
	for _, mode := range []string{"full", "window", "single_turn"} {
		t.Run(mode, func(t *testing.T) { exactIn(t, model, mode) })
	}
}

func exactIn(t *testing.T, model *torch.Model, mode string) {
	play := func(together int64, cached bool) ([]*episode.Episode, Stats) {
		engine, err := torch.NewEngine(model, torch.EngineConfig{MaxSequences: together, MaxLength: 1024,
			MaxBatchTokens: 96, PrefixCache: cached})
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close()
		rollout := defaults()
		rollout.Prompt, rollout.MaxTokens, rollout.MaxLength, rollout.Context, rollout.Window = "compact", 12, 1024,
			mode, 2
		episodes, stats, err := player(t, engine, rollout).Play(context.Background(), Plan{
			Stream: Train, Step: 1, Sources: []config.Env{source(3, 3, nil)}, EnvSeed: 1,
			Sampling: torch.Sampling{Temperature: 0.8, TopP: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		return episodes, stats
	}
	episodes, stats := play(8, true)
	var ids [][]int32
	var masks [][]bool
	for _, e := range episodes {
		bounds := append([]int{0}, e.Contexts[min(1, len(e.Contexts)):]...)
		for i, from := range bounds {
			to := append(bounds, len(e.IDs))[i+1]
			ids, masks = append(ids, e.IDs[from:to]), append(masks, e.Mask[from:to])
		}
	}
	logprobs, err := model.Logprobs(torch.Pack(ids, masks), 0.8)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, e := range episodes {
		for j, sampled := range e.Mask {
			if sampled && e.Logprob[j] != logprobs[at] {
				t.Errorf("episode %d, token %d: sampled with log-prob %v, trained with %v", e.Index, j, e.Logprob[j],
					logprobs[at])
			}
			at++
		}
	}
	if stats.Turns != 27 || stats.CachedTokens < stats.PromptTokens/2 && mode == "full" || stats.CachedTokens == 0 {
		t.Errorf("%d turns and %d of %d prompt tokens cached, want 27 turns and most tokens", stats.Turns,
			stats.CachedTokens, stats.PromptTokens)
	}
	if alone, _ := play(1, true); !reflect.DeepEqual(alone, episodes) {
		t.Error("episodes differ when sequences decode one at a time")
	}
	if uncached, stats := play(8, false); !reflect.DeepEqual(uncached, episodes) || stats.CachedTokens != 0 {
		t.Errorf("episodes differ without the prefix cache, or it was not off: %d cached tokens", stats.CachedTokens)
	}
}
