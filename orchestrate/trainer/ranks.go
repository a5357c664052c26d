package trainer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/orchestrate/ranks"
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

// lanes are what gradients are added up in where their bits must not depend on the number of ranks: the samples of a pass are dealt to so many
// lanes, a rank computes its lanes one after the other, each into a buffer of its own, and the lanes are added in one fixed tree.
type lanes struct {
	buffers map[*torch.Gradients][]*torch.Gradients // of this rank's lanes, by the gradient that they are parts of
	idle    map[*torch.Model][]*torch.Gradients     // zero
	at      int                                     // the lane that is being computed
}

func (l *lanes) close() {
	for _, set := range l.buffers {
		closeGradients(set)
	}
	for _, set := range l.idle {
		closeGradients(set)
	}
	*l = lanes{}
}

func closeGradients(set []*torch.Gradients) {
	for _, g := range set {
		g.Close()
	}
}

// of gives the buffers of a gradient's lanes, zero where the gradient has none yet.
func (l *lanes) of(model *torch.Model, g *torch.Gradients, n int) (set []*torch.Gradients, err error) {
	if l.buffers == nil {
		l.buffers, l.idle = map[*torch.Gradients][]*torch.Gradients{}, map[*torch.Model][]*torch.Gradients{}
	}
	if set = l.buffers[g]; set != nil {
		return set, nil
	}
	if set = l.idle[model]; set != nil {
		delete(l.idle, model)
	}
	for len(set) < n {
		lane, err := torch.NewGradients(model)
		if err != nil {
			closeGradients(set)
			return nil, fmt.Errorf("a gradient buffer for a lane (fsdp.lanes): %w", err)
		}
		set = append(set, lane)
	}
	l.buffers[g] = set
	return set, nil
}

// add puts the lanes of a gradient into it: neighbours, then neighbours of those. Ranks are added in the same order, so that the tree is the same
// wherever its leaves are computed.
func (l *lanes) add(model *torch.Model, into *torch.Gradients) error {
	set := l.buffers[into]
	if set == nil {
		return nil
	}
	delete(l.buffers, into)
	for step := 1; step < len(set); step *= 2 {
		for i := 0; i+step < len(set); i += 2 * step {
			if err := set[i].Add(set[i+step], 1); err != nil {
				return err
			}
		}
	}
	if err := into.Add(set[0], 1); err != nil {
		return err
	}
	if l.idle[model] != nil {
		closeGradients(set)
		return nil
	}
	for _, g := range set {
		if err := g.Zero(); err != nil {
			return err
		}
	}
	l.idle[model] = set
	return nil
}

// spread runs a pass over this rank's part of the chosen samples. run adds gradients to the buffers that it is given in place of into (nil ones
// stay nil); reduce must follow before anything is said about them.
func (e *equipment) spread(model *torch.Model, samples []*Sample, indices []int, into []*torch.Gradients,
	run func(indices []int, into []*torch.Gradients) error) error {
	if !e.config.FSDP.Deterministic {
		return run(e.mine(samples, indices), into)
	}
	each := e.config.FSDP.Lanes / e.world.Size()
	parts := cut(samples, indices, e.config.FSDP.Lanes)[e.world.Rank()*each:][:each]
	defer func() { e.lanes.at = 0 }()
	for lane, part := range parts {
		e.lanes.at = e.world.Rank()*each + lane
		buffers := make([]*torch.Gradients, len(into))
		for i, g := range into {
			if g == nil {
				continue
			}
			set, err := e.lanes.of(model, g, each)
			if err != nil {
				return err
			}
			buffers[i] = set[lane]
		}
		if err := run(part, buffers); err != nil {
			return err
		}
	}
	return nil
}

// reduce makes gradients that this rank has a part of those of all ranks. It is collective.
func (e *equipment) reduce(ctx context.Context, model *torch.Model, gradients ...*torch.Gradients) error {
	for _, g := range gradients {
		if g == nil {
			continue
		}
		if err := e.lanes.add(model, g); err != nil {
			return err
		}
		if err := addUp(ctx, e.world.Data(), g); err != nil {
			return fmt.Errorf("adding the ranks' gradients: %w", err)
		}
	}
	return nil
}

// addUp makes a gradient the sum of all ranks', in the order in which lanes are added.
func addUp(ctx context.Context, group *torch.Group, g *torch.Gradients) error {
	if group == nil {
		return nil
	}
	for i := range g.Parameters() {
		t, err := g.Tensor(i)
		if err != nil {
			return err
		}
		values, err := t.Float32s()
		if err == nil {
			err = addUpValues(ctx, group, values)
		}
		if err == nil {
			err = t.SetFloat32s(values)
		}
		if err = errors.Join(err, t.Close()); err != nil {
			return err
		}
	}
	return nil
}

func addUpValues(ctx context.Context, group *torch.Group, values []float32) error {
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		return err
	}
	parts, err := group.AllGather(ctx, data)
	if err != nil {
		return err
	}
	all := make([][]float32, len(parts))
	for r, part := range parts {
		all[r] = make([]float32, len(values))
		if _, err := binary.Decode(part, binary.LittleEndian, all[r]); err != nil {
			return err
		}
	}
	for step := 1; step < len(all); step *= 2 {
		for r := 0; r+step < len(all); r += 2 * step {
			for i, v := range all[r+step] {
				all[r][i] += v
			}
		}
	}
	copy(values, all[0])
	return nil
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

// fill computes a token-aligned column of the samples, each rank its part of it. It is collective.
func (e *equipment) fill(ctx context.Context, samples []*Sample, column func(*Sample) *[]float32, compute func(torch.Batch) ([]float32, error)) error {
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
		known[i] = *column(samples[i])
	}
	parts, err := ranks.Gather(ctx, e.world, known)
	if err != nil {
		return err
	}
	for _, part := range parts {
		for i, values := range part {
			*column(samples[i]) = values
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
