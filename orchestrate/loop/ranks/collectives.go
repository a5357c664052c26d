package ranks

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"slices"
	"time"

	"gyre/torch"
)

// Gather gives every rank what each of them has, in the order of ranks: one rank gets its own value back. It is
// collective.
func Gather[T any](ctx context.Context, w *World, mine T) ([]T, error) {
	if w.Size() == 1 {
		return []T{mine}, nil
	}
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(&mine); err != nil {
		return nil, fmt.Errorf("what this rank has for the others: %w", err)
	}
	parts, err := w.Group().AllGather(ctx, data.Bytes())
	if err != nil {
		return nil, err
	}
	all := make([]T, len(parts))
	for rank, part := range parts {
		if err := gob.NewDecoder(bytes.NewReader(part)).Decode(&all[rank]); err != nil {
			return nil, fmt.Errorf("what rank %d has for the others: %w", rank, err)
		}
	}
	return all, nil
}

// Broadcast gives every rank what rank 0 has. It is collective.
func Broadcast[T any](ctx context.Context, w *World, mine T) (T, error) {
	all, err := Gather(ctx, w, mine)
	if err != nil {
		return mine, err
	}
	return all[0], nil
}

// Any reports whether any rank says yes. It is collective.
func (w *World) Any(ctx context.Context, yes bool) (bool, error) {
	all, err := Gather(ctx, w, yes)
	return slices.Contains(all, true), err
}

// Max is the largest of what the ranks have, NaN where one of them has that. It is collective.
func (w *World) Max(ctx context.Context, mine float64) (float64, error) {
	all, err := Gather(ctx, w, mine)
	if err != nil {
		return 0, err
	}
	return slices.Max(all), nil
}

// Agree tells every rank of an error that one of them has met, so that none goes on alone. It is collective.
func (w *World) Agree(ctx context.Context, err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, failed := Gather(ctx, w, text)
	switch {
	case failed != nil:
		return errors.Join(err, failed)
	case err != nil:
		return err
	}
	for rank, other := range all {
		if other != "" {
			return fmt.Errorf("rank %d: %s", rank, other)
		}
	}
	return nil
}

// TensorParallel is the process group of n neighbouring ranks, this one among them, that are tensor parallel in
// sampling; n divides the number of ranks. All ranks call it: a group of its own leaves each n to their own pace. It is
// closed with the world.
func (w *World) TensorParallel(ctx context.Context, n int) (*torch.Group, error) {
	return w.neighbours(ctx, "tensor", w.Place.Rank/n*n, n)
}

// Part is the world of n neighbouring ranks from first on, this one among them, all of which call it: their collectives
// are their own. It is closed with the world.
func (w *World) Part(ctx context.Context, first, n int) (*World, error) {
	group, err := w.neighbours(ctx, "part", first, n)
	part := &World{Place: w.Place, ctx: w.ctx, members: w.members, config: w.config, group: group,
		groups: []*torch.Group{group, w.group}}
	part.Place.Rank, part.Place.Size = w.Place.Rank-first, n
	return part, err
}

// neighbours is the process group of n ranks from first on.
func (w *World) neighbours(ctx context.Context, name string, first, n int) (*torch.Group, error) {
	config := w.config
	config.First, config.Rank, config.WorldSize = first, w.Place.Rank-first, n
	config.Prefix = fmt.Sprintf("%s%s%d/", config.Prefix, name, first)
	return w.openGroup(ctx, config)
}

// Traffic is what this rank has sent to others so far, and the time in which it could not go on because of what they
// had not sent.
func (w *World) Traffic() (sent float64, waited time.Duration) {
	for _, group := range w.groups {
		all := group.Traffic().Total()
		sent, waited = sent+all.Sent, waited+all.Waited
	}
	return sent, waited
}
