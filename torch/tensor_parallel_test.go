package torch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func init() {
	rankBodies["together"] = ranksSampleTogether
	rankBodies["together-memory"] = ranksShareTheCopy
	rankBodies["together-fall"] = followerFalls
	rankBodies["together-stop"] = leaderStops
}

// sampled is what an engine draws for some requests.
func sampled(e *Engine, vocab int64) (map[uint64]Output, error) {
	all := trainingSequences(6, vocab)
	for i, s := range all {
		err := e.Submit(Request{ID: uint64(i), Prompt: s.ids, Sampling: Sampling{Temperature: 1, TopP: 1, MaxTokens: 5 +
			i, Seed: uint64(i)}})
		if err != nil {
			return nil, err
		}
	}
	outputs := map[uint64]Output{}
	for n := 1; n > 0; {
		var err error
		if n, err = e.Step(); err != nil {
			return nil, err
		}
		done, err := e.Poll()
		if err != nil {
			return nil, err
		}
		for _, o := range done {
			outputs[o.ID] = o
		}
	}
	return outputs, nil
}

var togetherEngine = EngineConfig{MaxSequences: 4, MaxLength: 40, MaxBatchTokens: 32, PrefixCache: true}

// ranksSampleTogether compares all ranks, over shards and whole models, with this process alone: before and after the
// weights change.
func ranksSampleTogether(group *Group) error {
	models := shardConfigs()
	for _, name := range []string{"llama", "qwen2", "qwen3", "mixture"} { // in one order on all ranks
		config := models[name]
		config.NumHeads, config.NumKVHeads = 8, 4
		for _, shard := range []string{ShardFull, ShardNone} {
			if err := sampleTogether(group, config, shard); err != nil {
				return fmt.Errorf("%s, shard = %s, %d ranks: %w", name, shard, group.WorldSize(), err)
			}
		}
	}
	return nil
}

func sampleTogether(group *Group, config ModelConfig, shard string) error {
	m, err := NewShardedModel(config, group, ShardConfig{Shard: shard, Prefetch: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	alone, err := NewModel(config)
	if err != nil {
		return err
	}
	defer alone.Close()
	if err := m.TensorParallel(group); err != nil {
		return err
	}
	if err := m.TensorParallel(group); group.WorldSize() > 1 && !errors.Is(err, ErrInvalidArgument) {
		return fmt.Errorf("shared twice: %v", err)
	}
	var engines [2]*Engine
	for i, model := range []*Model{m, alone} {
		if engines[i], err = NewEngine(model, togetherEngine); err != nil {
			return err
		}
		defer engines[i].Close()
	}
	for round := range 2 {
		scale := float32(1 + round)
		for _, model := range []*Model{m, alone} {
			if err := fillHeld(model, func(x float32) float32 { return x * scale }); err != nil {
				return err
			}
		}
		if err := m.Gather(); err != nil {
			return err
		}
		var got map[uint64]Output
		if err := engines[0].TensorParallel(context.Background(), func() (err error) {
			got, err = sampled(engines[0],
				config.VocabSize)
			return err
		}); err != nil {
			return err
		}
		if engines[0].Follows() != (group.Rank() > 0) || (got == nil) != (group.Rank() > 0) {
			return fmt.Errorf("rank %d follows: %v, and has %d outputs", group.Rank(), engines[0].Follows(), len(got))
		}
		if err := errors.Join(engines[0].Sleep(), group.Barrier(context.Background())); err != nil {
			return err
		}
		if group.Rank() > 0 {
			continue
		}
		want, err := sampled(engines[1], config.VocabSize)
		if err != nil {
			return err
		}
		for id, w := range want {
			if g := got[id]; !slices.Equal(g.Tokens, w.Tokens) || !slices.Equal(g.Logprobs, w.Logprobs) ||
				g.CachedTokens != w.CachedTokens {
				return fmt.Errorf("round %d, request %d: %v, alone %v", round, id, g, w)
			}
		}
	}
	if traffic := group.Traffic(); (traffic[CargoActivations].Sent > 0) != (group.WorldSize() > 1) {
		return fmt.Errorf("%v bytes were sent to sample together", traffic[CargoActivations].Sent)
	}
	return nil
}

// ranksShareTheCopy measures what the packed weights add to each rank.
func ranksShareTheCopy(group *Group) error {
	config := ModelConfig{Family: Llama, VocabSize: 16384, HiddenSize: 768, IntermediateSize: 2048, NumLayers: 10,
		NumHeads: 12, NumKVHeads: 4, HeadDim: 64,
		MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true}
	m, err := NewModel(config)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := errors.Join(m.Touch(), m.TensorParallel(group)); err != nil {
		return err
	}
	e, err := NewEngine(m, togetherEngine)
	if err != nil {
		return err
	}
	defer e.Close()
	before := residentBytes()
	if err := m.Gather(); err != nil {
		return err
	}
	fmt.Printf("%d\n", residentBytes()-before)
	return group.Barrier(context.Background())
}

// residentBytes is what this process has in memory now, 0 where that cannot be read.
func residentBytes() int64 {
	var size, resident int64
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fmt.Sscan(string(data), &size, &resident)
	return resident * int64(os.Getpagesize())
}

func TestEachOfRanksThatSampleTogetherPacksItsShare(t *testing.T) {
	if residentBytes() == 0 {
		t.Skip("no /proc/self/statm")
	}
	const whole = 4 * (10*(768*(2*768+2*256)+3*768*2048) + 16384*768) // bytes of all matrices and the tied head
	for _, n := range []int{2, 4} {
		output, failed := startRanks(t, "together-memory", n, time.Minute).wait()
		for r, text := range output {
			var bytes int64
			if _, err := fmt.Sscan(text, &bytes); failed[r] != nil || err != nil {
				t.Fatalf("rank %d: %v: %s", r, failed[r], text)
			}
			share := float64(bytes) / (float64(whole) / float64(n))
			t.Logf("rank %d of %d: %.1f MiB, %.3f of its share", r, n, float64(bytes)/(1<<20), share)
			if share < 0.9 || share > 1.2 {
				t.Errorf("rank %d of %d holds %.1f MiB, %.2f times its share of %.1f MiB", r, n, float64(bytes)/(1<<20),
					share, float64(whole)/float64(n)/(1<<20))
			}
		}
	}
}

// sharedEngine is an engine of a model that the group shares.
func sharedEngine(group *Group) (*Model, *Engine, error) {
	config := shardConfigs()["llama"]
	config.NumHeads, config.NumKVHeads = 8, 4
	m, err := NewModel(config)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(fillHeld(m), m.TensorParallel(group)); err != nil {
		return nil, nil, err
	}
	e, err := NewEngine(m, togetherEngine)
	return m, e, err
}

// The last rank ends after some steps.
func followerFalls(group *Group) error {
	m, e, err := sharedEngine(group)
	if err != nil {
		return err
	}
	defer m.Close()
	defer e.Close()
	if group.Rank() == group.WorldSize()-1 {
		time.AfterFunc(300*time.Millisecond, func() { os.Exit(7) })
	}
	begin := time.Now()
	err = e.TensorParallel(context.Background(), func() error {
		for {
			if _, err := sampled(e, m.Config.VocabSize); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, ErrDisconnected) || time.Since(begin) > 20*time.Second {
		return fmt.Errorf("got %v after %v", err, time.Since(begin))
	}
	fmt.Println(err)
	return nil
}

// The rank that notices first names the one that ended, and leaves the group; another may meet that end before the first one. The run as a
// whole is told of the first (package ranks).
func TestFollowerThatFallsIsNamed(t *testing.T) {
	output, failed := startRanks(t, "together-fall", 3, time.Minute).wait()
	named := 0
	for r, text := range output[:2] {
		if failed[r] != nil || !strings.Contains(text, "has gone") {
			t.Errorf("rank %d: %v: %s", r, failed[r], text)
		}
		if strings.Contains(text, "rank 2 has gone") {
			named++
		}
	}
	if named == 0 {
		t.Errorf("nobody names rank 2: %q", output[:2])
	}
}

// The context of a follower ends while it waits, and later the first rank fails by itself: nobody hangs.
func leaderStops(group *Group) error {
	m, e, err := sharedEngine(group)
	if err != nil {
		return err
	}
	defer m.Close()
	defer e.Close()
	if group.Rank() == 0 {
		problem := errors.New("the environments are gone")
		if err := e.TensorParallel(context.Background(),
			func() error { time.Sleep(200 * time.Millisecond); return problem }); !errors.Is(err, problem) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	if group.Rank() == 2 {
		ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
	}
	if err := e.TensorParallel(ctx, nil); !errors.Is(err, ErrDisconnected) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("got %v", err)
	}
	return nil
}

func TestAnEndOnOneSideEndsAll(t *testing.T) {
	runRanks(t, "together-stop", 2)
	runRanks(t, "together-stop", 3)
}

func TestWhatRanksCannotSampleTogether(t *testing.T) {
	config := shardConfigs()["llama"] // 6 heads, 2 key/value heads
	for n, want := range map[int]string{1: "", 2: "", 6: "", 4: "1, 2, 6"} {
		if err := config.CheckTensorParallel(n); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(),
			want) {
			t.Errorf("%d ranks: %v, expected %q", n, err, want)
		}
	}
	m, err := NewModel(config)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.TensorParallel(nil); err != nil {
		t.Error(err)
	}
	e, err := NewEngine(m, togetherEngine)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if led := false; e.Follows() || e.TensorParallel(t.Context(), func() error { led = true; return nil }) != nil || !led {
		t.Error("one process does not lead")
	}
}
