package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gyre/orchestrate/loop/versions"
)

// failure is why an episode failed.
type failure struct {
	Stop    string `json:"stop"`
	Problem string `json:"problem"`
}

// UnderWay is an episode that has begun, of a batch that is not trained on yet: what it takes to play it to the same
// point again.
type UnderWay struct {
	Batch    int      `json:"step"`
	Episode  int      `json:"episode"`
	Attempt  int      `json:"attempt"`
	Failure  *failure `json:"failure,omitempty"`
	Replies  []drawn  `json:"replies"`
	Draft    *drawn   `json:"draft,omitempty"` // of a reply that is not complete
	Versions [][2]int `json:"versions"`
	Mixed    [][2]int `json:"mixed,omitempty"`
}

// UnderWay pauses, and is what has begun.
func (w *Window) UnderWay(context.Context) (all []UnderWay, err error) {
	if err := w.Pause(); err != nil {
		return nil, err
	}
	for _, r := range w.rounds {
		for _, one := range r.runners[:r.started] {
			u := UnderWay{Batch: r.plan.Batch, Episode: one.index, Attempt: one.attempt, Replies: one.replies,
				Versions: versions.Pairs(one.versions), Mixed: one.mixed}
			if one.ended && one.failed() {
				u.Failure = &failure{one.stop, one.game.failure.Error()}
			}
			if len(one.draft.IDs) > 0 {
				u.Draft = &one.draft
			}
			all = append(all, u)
		}
	}
	return all, nil
}

// Restore begins what another window had begun, in its order. Environments are started anew and given the actions that
// they have had.
func (w *Window) Restore(all []UnderWay) error {
	w.floor.fresh = true
	for _, u := range all {
		if n := len(w.rounds); n == 0 || w.rounds[n-1].plan.Batch < u.Batch {
			if err := w.begin(u.Batch); err != nil {
				return err
			}
		}
		r := w.rounds[len(w.rounds)-1]
		if u.Batch != r.plan.Batch || u.Episode >= r.plan.Episodes() {
			return fmt.Errorf("what was under way has episode %d of batch %d among %d of batch %d: the checkpoint's "+
				"batches are others than this configuration's", u.Episode, u.Batch, r.plan.Episodes(), r.plan.Batch)
		}
		// Those that have begun come first: where processes divided the batch they are not its first ones.
		at := slices.IndexFunc(r.runners, func(one *runner) bool { return one.index == u.Episode })
		if at < 0 { // another process's
			continue
		}
		one := r.runners[at]
		r.runners = slices.Insert(slices.Delete(r.runners, at, at+1), r.started, one)
		r.started++
		one.attempt = u.Attempt
		r.attempt = max(r.attempt, u.Attempt)
		if one.over { // by the schedule
			continue
		}
		if u.Failure != nil {
			one.recall(*u.Failure)
			continue
		}
		one.replies, one.versions, one.mixed = u.Replies, versions.Runs(u.Versions), u.Mixed
		if u.Draft != nil {
			one.draft = *u.Draft
		}
		r.start(w.floor, []*runner{one}, func(ctx context.Context, one *runner) error {
			return one.relive(ctx, u.Replies)
		})
	}
	return nil
}

// revive plays an episode that failed again, to the point where it was, with the replies that it has had: the weights
// that drew them may be gone.
func (r *runner) revive(f *floor) {
	fresh := &runner{player: r.player, kind: r.kind, slot: r.slot, round: r.round, attempt: r.attempt + 1,
		entry: r.entry, replies: r.replies, draft: r.draft, versions: r.versions, mixed: r.mixed, asked: true}
	r.round.runners[slices.Index(r.round.runners, r)] = fresh
	f.send(fresh, func(ctx context.Context) error { return fresh.relive(ctx, r.replies) })
}

// recall makes an episode one that has failed.
func (r *runner) recall(f failure) {
	r.over, r.ended = true, true
	r.stop, r.game.stop, r.game.failure = f.Stop, f.Stop, errors.New(f.Problem)
}
