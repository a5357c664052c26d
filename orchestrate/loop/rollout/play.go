package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gyre/envs"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
)

// Play plays the plan's episodes and returns them in (group, member) order, scored, normalised and with metrics. The
// result does not depend on which reply or environment is ready first, nor on how many ranks play: each returns the
// episodes of all.
//
// An episode whose environment fails is played again, with the same seed and the same random draws: a failure that
// has passed leaves no trace. One that fails again is missing in the result, see Stats. An error is about the run as
// a whole: a broken template, the sampler, the end of ctx, or training episodes of which more than rollout.max_failed
// failed.
func (p *Player) Play(ctx context.Context, plan Plan) (_ []*episode.Episode, _ Stats, err error) {
	runners, err := p.runners(plan)
	if err != nil {
		return nil, Stats{}, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("playing step %d (%s): %w", plan.Step, plan.Stream, err)
		}
	}()
	runners = slices.DeleteFunc(runners, func(r *runner) bool { return !p.plays(r.group) })
	if err := p.openGateway(runners); err != nil {
		return nil, Stats{}, err
	}
	round := &round{player: p, plan: plan, runners: runners}
	if len(runners) == 0 && plan.Progress != nil {
		plan.Progress(1, 1) // nobody waits for this rank
	}
	if err := p.source.TensorParallel(ctx, func() error { return round.run(ctx) }); err != nil {
		return nil, Stats{}, err
	}
	shares, err := ranks.Gather(ctx, p.world, round.share())
	if err != nil {
		return nil, Stats{}, err
	}
	return p.Batch(plan, shares)
}

// plays tells whether this rank has a group's environments: of ranks that sample as one the first does.
func (p *Player) plays(group int) bool {
	return group%(p.world.Size()/p.together) == p.world.Rank()/p.together && !p.source.Follows()
}

// round is one batch of episodes.
type round struct {
	player  *Player
	plan    Plan
	runners []*runner // the last attempt at each episode
	attempt int       // 2: those that failed are being played again
	started int       // of the runners, of a round that begins group by group
	// first of the ids of its requests
	requests uint64
	settled  bool // what second attempts came to is noted
	live     int  // episodes of this attempt that are not finished
	stats    Stats
}

func open(ctx context.Context, one *runner) error {
	if outside := one.pool.outside; outside != nil {
		return one.attend(ctx, one.round.plan, outside)
	}
	return one.open(ctx)
}

// run plays all episodes, and those that fail once more.
func (r *round) run(ctx context.Context) error {
	if err := r.play(ctx, r.runners, open); err != nil {
		return err
	}
	failed, err := r.again(ctx)
	if err != nil || len(failed) == 0 {
		return err
	}
	r.plan.Progress = nil // these were counted
	if err := r.play(ctx, failed, open); err != nil {
		return err
	}
	r.settle(failed)
	return nil
}

// again notes what the first attempts came to and makes second ones at the episodes that failed, after a pause where
// these are many.
func (r *round) again(ctx context.Context) (failed []*runner, err error) {
	r.attempt = 2
	for i, one := range r.runners {
		r.stats.note(one)
		if errors.Is(one.game.failure, envs.ErrUnreliable) {
			return nil, one.game.failure
		}
		if one.failed() {
			// The same seed, and the same random draws.
			r.runners[i] = &runner{player: one.player, kind: one.kind, slot: one.slot, attempt: 2}
			failed = append(failed, r.runners[i])
		}
	}
	if len(failed) == 0 {
		return nil, nil
	}
	return failed, r.player.failures.pause(ctx, len(failed), len(r.runners), r.player.rollout.MaxFailed)
}

// settle notes what second attempts came to.
func (r *round) settle(second []*runner) {
	for _, one := range second {
		r.stats.note(one)
		if !one.failed() {
			r.stats.Replayed++
		}
	}
}

// play plays episodes to their ends; begin starts each, or does all of it.
func (r *round) play(
	ctx context.Context, runners []*runner, begin func(context.Context, *runner) error,
) (err error) {
	f := newFloor(ctx, r.player, len(runners))
	f.version = max(r.plan.Step-1, 0)
	defer func() {
		err = errors.Join(err, f.close(runners))
		r.stats.Generation, r.stats.EnvWait = r.stats.Generation+f.sampled, r.stats.EnvWait+f.waited
	}()
	r.start(f, runners, begin)
	for r.live > 0 {
		if err := f.turn(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start sends episodes to the workers.
func (r *round) start(f *floor, runners []*runner, begin func(context.Context, *runner) error) {
	r.live += len(runners)
	for _, one := range runners {
		one.round = r
		f.opening++
		f.send(one, func(ctx context.Context) error { return begin(ctx, one) })
	}
}

// finished counts an episode that has come to its end.
func (r *round) finished() {
	r.live--
	if r.plan.Progress != nil {
		r.plan.Progress(len(r.runners)-r.live, len(r.runners))
	}
}

// Share is what one process has played of a batch.
type Share struct {
	Episodes []*episode.Episode
	Stats    Stats
}

// share makes the episodes of a round that are kept, and says what they cost.
func (r *round) share() Share {
	own := Share{Stats: r.stats}
	own.Stats.Planned, own.Stats.Stops = len(r.runners), map[string]int{}
	for _, one := range r.runners {
		own.Stats.Stops[one.stop]++
	}
	for _, one := range keep(r.runners) {
		own.Stats.PromptTokens += one.asking
		own.Stats.NewTokens += one.answered
		e := one.episode(r.plan.Step)
		if r.plan.Stream != Train {
			e.Versions = nil // these are those of training steps
		}
		own.Episodes = append(own.Episodes, e)
	}
	return own
}

// Batch makes a batch of its shares: scored, normalised, and checked as a whole.
func (p *Player) Batch(plan Plan, shares []Share) (episodes []*episode.Episode, stats Stats, err error) {
	for _, share := range shares {
		episodes = append(episodes, share.Episodes...)
		stats.merge(share.Stats)
	}
	slices.SortFunc(episodes, func(a, b *episode.Episode) int { return a.Index - b.Index })
	stats.complete(episodes)
	if len(episodes) > 0 && stats.Turns == 0 {
		shortest := len(slices.MinFunc(episodes, func(a, b *episode.Episode) int {
			return len(a.IDs) - len(b.IDs)
		}).IDs)
		return nil, Stats{}, fmt.Errorf("no first prompt (the shortest has at least %d tokens) leaves room for a "+
			"reply of rollout.max_tokens = %d within rollout.max_length = %d", shortest,
			p.rollout.MaxTokens, p.rollout.MaxLength)
	}
	if plan.Stream == Train {
		if err := p.failures.add(stats, p.rollout.MaxFailed); err != nil {
			return nil, Stats{}, err
		}
	}
	if !p.named && stats.LeftOut == 0 { // what failed might have had the components that nobody else has
		if err := p.weights.checkNames(episodes); err != nil {
			return nil, Stats{}, err
		}
		p.named = true
	}
	normalize(episodes, p.rollout.Normalize, p.rollout.NormalizeWithin)
	markPasses(episodes, plan.Sources)
	plan.weigh(episodes)
	return episodes, stats, nil
}
