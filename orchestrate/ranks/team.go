package ranks

import (
	"context"
	"fmt"
	"time"

	"gyre/torch"
)

// Team is the process group of so many neighbouring ranks, this one among them, that sample together; n divides the number of ranks. All ranks call it,
// once: a group of its own leaves each team to its own pace. It is closed with the world.
func (w *World) Team(ctx context.Context, n int) (*torch.Group, error) {
	if w == nil || n == 1 {
		return nil, nil
	}
	if w.Place.Size%n != 0 || w.team != nil {
		return nil, fmt.Errorf("teams of %d ranks out of %d: expected a divisor, and to be asked once", n, w.Place.Size)
	}
	config := w.groups
	first := w.Place.Rank / n * n
	config.Rank, config.WorldSize, config.First, config.Prefix = w.Place.Rank-first, n, first, fmt.Sprintf("team%d/", first)
	var err error
	if w.team, err = torch.OpenGroup(ctx, config); err != nil {
		return nil, fmt.Errorf("the process group of ranks %d to %d, which sample together: %w", first, first+n-1, err)
	}
	return w.team, nil
}

// Traffic is what this rank has sent to others so far, and the time in which it could not go on because of what they had not sent.
func (w *World) Traffic() (sent float64, waited time.Duration) {
	if w == nil {
		return 0, 0
	}
	all, team := w.Group.Traffic().Total(), w.team.Traffic().Total()
	return all.Sent + team.Sent, all.Waited + team.Waited
}
