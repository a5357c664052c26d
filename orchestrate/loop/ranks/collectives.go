package ranks

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	"gyre/torch"
)

// Gather gives every rank what each of them has, in the order of ranks. It is collective.
func Gather[T any](ctx context.Context, w *World, mine T) ([]T, error) {
	if w == nil {
		return []T{mine}, nil
	}
	var data bytes.Buffer
	if err := gob.NewEncoder(&data).Encode(&mine); err != nil {
		return nil, fmt.Errorf("what ranks tell each other: %w", err)
	}
	parts, err := w.Group.AllGather(ctx, data.Bytes())
	if err != nil {
		return nil, err
	}
	all := make([]T, len(parts))
	for rank, part := range parts {
		if err := gob.NewDecoder(bytes.NewReader(part)).Decode(&all[rank]); err != nil {
			return nil, fmt.Errorf("what rank %d told: %w", rank, err)
		}
	}
	return all, nil
}

// Tell gives every rank what rank 0 has. It is collective.
func Tell[T any](ctx context.Context, w *World, mine T) (T, error) {
	if w == nil {
		return mine, nil
	}
	var data bytes.Buffer
	if w.Writes() {
		if err := gob.NewEncoder(&data).Encode(&mine); err != nil {
			return mine, fmt.Errorf("what rank 0 tells: %w", err)
		}
	}
	got, err := w.Group.Broadcast(ctx, data.Bytes(), 0)
	if err != nil || w.Writes() {
		return mine, err
	}
	var told T
	if err := gob.NewDecoder(bytes.NewReader(got)).Decode(&told); err != nil {
		return told, fmt.Errorf("what rank 0 told: %w", err)
	}
	return told, nil
}

// Any reports whether any rank says yes. It is collective.
func (w *World) Any(ctx context.Context, yes bool) (bool, error) {
	if w == nil {
		return yes, nil
	}
	most, err := w.Max(ctx, map[bool]float64{true: 1}[yes])
	return most > 0, err
}

// Max is the largest of what the ranks have. It is collective.
func (w *World) Max(ctx context.Context, mine float64) (float64, error) {
	if w == nil {
		return mine, nil
	}
	values := []float64{mine}
	err := w.Group.AllReduce(ctx, values, torch.Max)
	return values[0], err
}

// Agree tells every rank of an error that one of them has met, so that none goes on alone. It is collective.
func (w *World) Agree(ctx context.Context, err error) error {
	if w == nil {
		return err
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, failed := Gather(ctx, w, text)
	if err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	for rank, other := range all {
		if other != "" {
			return fmt.Errorf("rank %d: %s", rank, other)
		}
	}
	return nil
}

// Team is the process group of n neighbouring ranks, this one among them, that are tensor parallel in sampling; n
// divides the number of ranks. All ranks call it, once: a group of its own leaves each team to its own pace. It is
// closed with the world.
func (w *World) Team(ctx context.Context, n int) (*torch.Group, error) {
	if w == nil || n == 1 {
		return nil, nil
	}
	if w.Place.Size%n != 0 || w.team != nil {
		return nil, fmt.Errorf("teams of %d ranks out of %d: expected a divisor, and to be asked once", n, w.Place.Size)
	}
	config := w.groups
	first := w.Place.Rank / n * n
	config.Rank, config.WorldSize, config.First, config.Prefix = w.Place.Rank-first, n, first,
		fmt.Sprintf("%steam%d/", config.Prefix, first)
	if err := w.openGroup(ctx, config, &w.team); err != nil {
		return nil, fmt.Errorf("the process group of ranks %d to %d, which are tensor parallel: %w", first, first+n-1,
			err)
	}
	return w.team, nil
}

// Traffic is what this rank has sent to others so far, and the time in which it could not go on because of what they
// had not sent.
func (w *World) Traffic() (sent float64, waited time.Duration) {
	if w == nil {
		return 0, 0
	}
	all, team := w.Group.Traffic().Total(), w.team.Traffic().Total()
	return all.Sent + team.Sent, all.Waited + team.Waited
}
