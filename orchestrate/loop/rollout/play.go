package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/torch"
)

// Play plays the plan's episodes and returns them in (group, member) order, scored, normalised and with metrics. The
// result does not depend on which reply or environment is ready first, nor on how many ranks play: each returns the
// episodes of all.
//
// An episode whose environment fails is played again, with the same seed and the same random draws: a failure that
// has passed leaves no trace. One that fails again is missing in the result, see Stats. An error is about the run as
// a whole: a broken template, the sampler, the end of ctx, or training episodes of which more than rollout.max_failed
// failed.
func (p *Player) Play(ctx context.Context, plan Plan) ([]*episode.Episode, Stats, error) {
	fail := func(err error) ([]*episode.Episode, Stats, error) {
		return nil, Stats{}, fmt.Errorf("playing step %d (%s): %w", plan.Step, plan.Stream, err)
	}
	runners, err := p.runners(plan.Sources, plan.EnvSeed, plan.Holdout)
	if err != nil {
		return nil, Stats{}, err
	}
	runners = slices.DeleteFunc(runners, func(r *runner) bool { return !p.plays(plan, r.group) })
	round := &round{player: p, plan: plan, runners: runners}
	if len(runners) == 0 && plan.Progress != nil {
		plan.Progress(1, 1) // nobody waits for this rank
	}
	if err := p.source.TensorParallel(ctx, func() error { return round.run(ctx) }); err != nil {
		return fail(err)
	}
	episodes, stats, err := round.gather(ctx)
	if err != nil {
		return fail(err)
	}
	if len(episodes) > 0 && stats.Turns == 0 {
		shortest := len(slices.MinFunc(episodes, func(a, b *episode.Episode) int { return len(a.IDs) - len(b.IDs) }).IDs)
		return nil, Stats{}, fmt.Errorf("no first prompt (the shortest has at least %d tokens) leaves room for a reply of "+
			"rollout.max_tokens = %d within rollout.max_length = %d", shortest, p.rollout.MaxTokens, p.rollout.MaxLength)
	}
	if plan.Stream == Train {
		if err := p.failures.add(stats, p.rollout.MaxFailed); err != nil {
			return fail(err)
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
	return episodes, stats, nil
}

// plays tells whether this rank has a group's environments: of ranks that sample as one the first does.
func (p *Player) plays(plan Plan, group int) bool {
	replica := max(plan.SamplerRanks, 1)
	return group%(plan.World.Size()/replica) == plan.World.Rank()/replica && !p.source.Follows()
}

// round is one call of Play.
type round struct {
	player   *Player
	plan     Plan
	runners  []*runner          // the last attempt at each episode
	requests map[uint64]*runner // by request id: replies being sampled
	live     int                // episodes of this attempt that are not finished
	away     int                // runners that are with the workers
	step     time.Duration      // of the last sampling step
	stats    Stats
}

// run plays all episodes, and those that fail once more.
func (r *round) run(ctx context.Context) error {
	open := func(ctx context.Context, one *runner) error { return one.open(ctx) }
	if err := r.play(ctx, r.runners, open); err != nil {
		return err
	}
	var failed []*runner
	for i, one := range r.runners {
		r.stats.note(one)
		if one.failed() {
			// The same seed, and the same random draws.
			r.runners[i] = &runner{player: one.player, kind: one.kind, slot: one.slot}
			failed = append(failed, r.runners[i])
		}
	}
	if len(failed) == 0 {
		return nil
	}
	if err := r.player.failures.pause(ctx, len(failed), len(r.runners), r.player.rollout.MaxFailed); err != nil {
		return err
	}
	r.plan.Progress = nil // these were counted
	if err := r.play(ctx, failed, open); err != nil {
		return err
	}
	for _, one := range failed {
		r.stats.note(one)
		if !one.failed() {
			r.stats.Replayed++
		}
	}
	return nil
}

// play plays episodes to their ends; begin starts each, or does all of it.
func (r *round) play(
	ctx context.Context, runners []*runner, begin func(context.Context, *runner) error,
) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	workers := startWorkers(ctx, r.player.rollout.EnvWorkers, len(runners))
	r.live, r.requests = len(runners), map[uint64]*runner{}
	defer func() {
		cancel()
		workers.close()
		if r.live > 0 { // it has failed: leave nothing behind in the sampler or in the environments
			for _, one := range runners {
				if !one.over {
					one.leave() // what goes wrong in this does not matter to an interrupted run
				}
			}
		}
		if len(r.requests) > 0 {
			err = errors.Join(err, r.player.source.Release())
		}
	}()
	for _, one := range runners {
		r.send(workers, one, func(ctx context.Context) error { return begin(ctx, one) })
	}
	for r.live > 0 {
		if err := r.collect(ctx, workers); err != nil {
			return err
		}
		if len(r.requests) > 0 {
			if err := r.sample(workers); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) send(workers *workers, one *runner, run func(context.Context) error) {
	r.away++
	workers.do(one, run)
}

// patience is the share of a sampling step that is spent waiting for environments. Most take much less than that to
// answer, and an episode that just misses a step waits for the whole of it.
const patience = 1.0 / 50

// collect takes the runners whose environments are done with the last reply and asks for their next. It waits for them
// only if there is nothing to sample meanwhile, but for a moment.
func (r *round) collect(ctx context.Context, workers *workers) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	moment := time.NewTimer(time.Duration(patience * float64(r.step)))
	defer moment.Stop()
	for r.away > 0 {
		select {
		case done := <-workers.done:
			if err := r.advance(done); err != nil {
				return err
			}
			continue
		default:
		}
		expired := moment.C
		if len(r.requests) == 0 {
			expired = nil
		}
		begun := time.Now()
		select {
		case done := <-workers.done:
			r.stats.EnvWait += time.Since(begun)
			if err := r.advance(done); err != nil {
				return err
			}
		case <-expired:
			r.stats.EnvWait += time.Since(begun)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// advance asks for a runner's next reply, unless its episode has ended.
func (r *round) advance(done result) error {
	r.away--
	if done.err != nil {
		return done.err
	}
	one := done.runner
	if !one.over {
		request := r.player.request(r.plan, one)
		if err := r.player.source.Submit(request); err != nil {
			return fmt.Errorf("%s: %w", one, err)
		}
		r.requests[request.ID] = one
		r.stats.PromptTokens += len(request.Prompt)
		return nil
	}
	r.live--
	if r.plan.Progress != nil {
		r.plan.Progress(len(r.runners)-r.live, len(r.runners))
	}
	return nil
}

// sample advances all replies by a step and hands the finished ones to the workers.
func (r *round) sample(workers *workers) error {
	begun := time.Now()
	outputs, err := r.player.source.Step()
	r.step = time.Since(begun)
	r.stats.Generation += r.step
	if err != nil {
		return err
	}
	for _, out := range outputs {
		one := r.requests[out.ID]
		delete(r.requests, out.ID)
		if out.Finish == torch.FinishAbort || len(out.Tokens) == 0 ||
			out.Logprobs != nil && len(out.Logprobs) != len(out.Tokens) { // a server's may not be known
			return fmt.Errorf("%s: the sampler returned %d tokens and %d log-probs (%s), expected a reply",
				one, len(out.Tokens), len(out.Logprobs), out.Finish)
		}
		r.stats.NewTokens += len(out.Tokens)
		r.stats.CachedTokens += out.CachedTokens
		r.send(workers, one, func(ctx context.Context) error { return one.answer(ctx, out.Tokens, out.Logprobs, true) })
	}
	return nil
}

// played is what a rank has to tell of a round.
type played struct {
	Episodes []*episode.Episode
	Stats    Stats
}

// gather makes the episodes that are kept, and gives every rank those of all with what they cost.
func (r *round) gather(ctx context.Context) ([]*episode.Episode, Stats, error) {
	own := played{Stats: r.stats}
	own.Stats.Planned, own.Stats.Stops = len(r.runners), map[string]int{}
	for _, one := range r.runners {
		own.Stats.Stops[one.stop]++
	}
	for _, one := range keep(r.runners) {
		own.Episodes = append(own.Episodes, one.episode(r.plan.Step))
	}
	all, err := ranks.Gather(ctx, r.plan.World, own)
	if err != nil {
		return nil, Stats{}, err
	}
	var episodes []*episode.Episode
	var stats Stats
	for _, share := range all {
		episodes = append(episodes, share.Episodes...)
		stats.merge(share.Stats)
	}
	slices.SortFunc(episodes, func(a, b *episode.Episode) int { return a.Index - b.Index })
	stats.complete(episodes)
	return episodes, stats, nil
}
