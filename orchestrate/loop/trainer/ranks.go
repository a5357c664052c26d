package trainer

import (
	"context"
	"math"
	"slices"
	"strings"

	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// Over ranks every process runs the same step on the same episodes: each plays its groups and computes its part of every pass, and what they
// found is exchanged before anything is decided by it. All of them therefore take the same way, and all collectives come in the same order.

// cut deals the chosen samples to parts of about as many rows each, those that begin alike next to each other: tokens that they share are
// computed once where they are in one part. It depends on nothing but the samples.
func cut(samples []*Sample, indices []int, parts int) [][]int {
	out := make([][]int, parts)
	if parts == 1 {
		out[0] = indices
		return out
	}
	sorted := slices.Clone(indices)
	slices.SortStableFunc(sorted, func(a, b int) int { return slices.Compare(samples[a].IDs, samples[b].IDs) })
	rows, total := make([]int, len(sorted)), 0
	for k, i := range sorted {
		rows[k] = len(samples[i].IDs)
		if k > 0 {
			rows[k] -= commonPrefix(samples[i].IDs, samples[sorted[k-1]].IDs)
		}
		rows[k] = max(rows[k], 1)
		total += rows[k]
	}
	before := 0
	for k, i := range sorted {
		part := min(parts*(2*before+rows[k])/(2*total), parts-1) // where the sample's middle falls
		out[part] = append(out[part], i)
		before += rows[k]
	}
	for _, part := range out {
		slices.Sort(part)
	}
	return out
}

// mine is this rank's part of the chosen samples.
func (e *equipment) mine(samples []*Sample, indices []int) []int {
	if e.world.Size() == 1 {
		return indices
	}
	return cut(samples, indices, e.world.Size())[e.world.Rank()]
}

// sharding says how the models of a run lie on its ranks; nil in one process whose gradients need not have the bits of several.
func (e *equipment) sharding() checkpoint.Ranks {
	f := e.config.FSDP
	if e.world == nil && !f.Deterministic {
		return checkpoint.Ranks{}
	}
	shard := f.Shard
	if e.world == nil {
		shard = torch.ShardNone
	}
	return checkpoint.Ranks{Group: e.world.Data(), Shards: &torch.ShardConfig{Shard: shard, Replicas: f.Replicas, Prefetch: f.Prefetch, WireDtype: f.WireDType,
		Deterministic: f.Deterministic, Lanes: f.Lanes}}
}

// spread runs a pass over this rank's part of the chosen samples, whose gradients run adds to the buffers: they become those of all ranks when they are
// first looked at. Where their bits must not depend on the number of ranks, the samples are dealt to lanes, which a rank computes one after the other.
func (e *equipment) spread(model *torch.Model, samples []*Sample, indices []int, into []*torch.Gradients, run func(indices []int) error) error {
	if !e.config.FSDP.Deterministic || !model.Sharded() {
		return run(e.mine(samples, indices))
	}
	defer func() { e.lane = 0 }()
	first, n := model.Lanes()
	for lane, part := range cut(samples, indices, e.config.FSDP.Lanes)[first:][:n] {
		for _, g := range slices.Compact(slices.Clone(into)) {
			if g == nil {
				continue
			}
			if err := g.BeginLane(first + lane); err != nil {
				return err
			}
		}
		e.lane = first + lane
		if err := run(part); err != nil {
			return err
		}
	}
	return nil
}

// eachPass calls do with every micro-batch of this rank's part of the chosen samples, as spread deals them.
func (e *equipment) eachPass(ctx context.Context, model *torch.Model, samples []*Sample, indices []int, into []*torch.Gradients, do func(micro []stretch) error) error {
	return e.spread(model, samples, indices, into, func(indices []int) error {
		passes, err := e.micro(ctx, samples, indices)
		if err != nil {
			return err
		}
		for _, micro := range passes {
			if err := do(micro); err != nil {
				return err
			}
		}
		return nil
	})
}

// collective reports whether every pass over a model takes all ranks, because each holds a part of the weights.
func (e *equipment) collective() bool { return e.world != nil && e.config.FSDP.Shard == "full" }

// micro cuts the chosen samples, this rank's, into micro-batches. Where passes take all ranks, each gets as many as the one with most: the last ones of
// the others are empty.
func (e *equipment) micro(ctx context.Context, samples []*Sample, indices []int) ([][]stretch, error) {
	out := microBatches(samples, indices, e.config.Actor.MicroBatchTokens)
	if !e.collective() {
		return out, nil
	}
	most, err := e.world.Max(ctx, float64(len(out)))
	for len(out) < int(most) {
		out = append(out, nil)
	}
	return out, err
}

// fill computes a token-aligned column of the samples, which is given by their index, each rank its part of it. It is collective.
func (e *equipment) fill(ctx context.Context, samples []*Sample, column func(i int) *[]float32, compute func(torch.Batch) ([]float32, error)) error {
	own := e.mine(samples, all(len(samples)))
	passes, err := e.micro(ctx, samples, own)
	if err != nil {
		return err
	}
	for _, micro := range passes {
		values, err := compute(pack(samples, micro))
		if err != nil {
			return err
		}
		scatter(samples, micro, values, column)
	}
	if e.world == nil {
		return nil
	}
	known := map[int][]float32{}
	for _, i := range own {
		known[i] = *column(i)
	}
	parts, err := ranks.Gather(ctx, e.world, known)
	if err != nil {
		return err
	}
	for _, part := range parts {
		for i, values := range part {
			*column(i) = values
		}
	}
	return nil
}

// silent is where the metrics of ranks go that write nothing.
type silent struct{}

func (silent) Log(int, map[string]any) error { return nil }
func (silent) Close() error                  { return nil }

// sums adds up what the ranks have by key, in the order of ranks. It is collective.
func sums[K comparable, V any](ctx context.Context, w *ranks.World, mine map[K]V, add func(a, b V) V) (map[K]V, error) {
	all, err := ranks.Gather(ctx, w, mine)
	if err != nil || len(all) == 1 {
		return mine, err
	}
	total := map[K]V{}
	for _, part := range all {
		for name, v := range part {
			if before, ok := total[name]; ok {
				v = add(before, v)
			}
			total[name] = v
		}
	}
	return total, nil
}

// ofAllRanks replaces what a step measured of this process by what it measured of all: times are those of the slowest rank, memory is that of the
// largest, rates and shares are means. It is collective.
func (e *equipment) ofAllRanks(ctx context.Context, m map[string]float64) error {
	if e.world == nil {
		return nil
	}
	mine := map[string]float64{}
	for name, v := range m {
		if strings.HasPrefix(name, "timing_s/") || strings.HasPrefix(name, "perf/") {
			mine[name] = v
		}
	}
	all, err := ranks.Gather(ctx, e.world, mine)
	if err != nil {
		return err
	}
	count, total := map[string]float64{}, map[string]float64{}
	for _, part := range all {
		for name, v := range part {
			switch {
			case count[name] == 0:
				total[name] = v
			case strings.HasPrefix(name, "timing_s/"), name == "perf/peak_rss_gib":
				total[name] = math.Max(total[name], v)
			default:
				total[name] += v
			}
			count[name]++
		}
	}
	for name, v := range total {
		if !strings.HasPrefix(name, "timing_s/") && name != "perf/peak_rss_gib" && name != "perf/preemptions" {
			v /= count[name]
		}
		m[name] = v
	}
	return nil
}
