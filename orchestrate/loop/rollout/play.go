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
// result does not depend on which reply or environment is ready first, nor on how many ranks play: each returns the episodes of all. An error is about the run as a whole (a broken
// template, the sampler, the end of ctx); what goes wrong in an environment is in Stats.Failures instead.
func (p *Player) Play(ctx context.Context, plan Plan) ([]*episode.Episode, Stats, error) {
	seats, err := p.seats(plan.Sources, plan.EnvSeed, plan.Holdout)
	if err != nil {
		return nil, Stats{}, err
	}
	seats = slices.DeleteFunc(seats, func(s *seat) bool { return !p.plays(plan, s.group) })
	round := &round{player: p, plan: plan, seats: seats, live: len(seats), asked: map[uint64]*seat{}}
	if len(seats) == 0 && plan.Progress != nil {
		plan.Progress(1, 1) // nobody waits for this rank
	}
	if err := p.driver.Together(ctx, func() error { return round.run(ctx) }); err != nil {
		return nil, Stats{}, fmt.Errorf("playing step %d (%s): %w", plan.Step, plan.Stream, err)
	}
	episodes := make([]*episode.Episode, len(seats))
	for i, s := range seats {
		episodes[i] = s.episode(plan.Step)
		round.stats.add(s)
		if s.stop == episode.Length && len(s.talk.turns) == 0 {
			round.stats.TooLong++
		}
	}
	if episodes, err = round.together(ctx, episodes); err != nil {
		return nil, Stats{}, fmt.Errorf("playing step %d (%s): %w", plan.Step, plan.Stream, err)
	}
	if n := round.stats.TooLong; n > 0 && n == len(episodes) {
		return nil, Stats{}, fmt.Errorf("no first prompt (the shortest has %d tokens) leaves room for a reply of rollout.max_tokens = %d "+
			"within rollout.max_length = %d", round.stats.Shortest, p.rollout.MaxTokens, p.rollout.MaxLength)
	}
	if !p.named {
		if err := p.weights.checkNames(episodes); err != nil {
			return nil, Stats{}, err
		}
		p.named = true
	}
	normalize(episodes, p.rollout.Normalize, p.rollout.NormalizeWithin)
	markPasses(episodes)
	return episodes, round.stats, nil
}

// plays tells whether this rank has a group's environments: of ranks that sample together the first does.
func (p *Player) plays(plan Plan, group int) bool {
	together := max(plan.Together, 1)
	return group%(plan.World.Size()/together) == plan.World.Rank()/together && !p.driver.Follows()
}

// played is what a rank has to tell of a round.
type played struct {
	Episodes []*episode.Episode
	Stats    Stats
}

// together gives every rank the episodes of all, and what they cost.
func (r *round) together(ctx context.Context, own []*episode.Episode) ([]*episode.Episode, error) {
	if r.plan.World == nil {
		return own, nil
	}
	all, err := ranks.Gather(ctx, r.plan.World, played{own, r.stats})
	if err != nil {
		return nil, err
	}
	var episodes []*episode.Episode
	r.stats = Stats{}
	for _, part := range all {
		for _, e := range part.Episodes {
			if e.Metrics == nil { // an empty map does not travel
				e.Metrics = map[string]float64{}
			}
			episodes = append(episodes, e)
		}
		r.stats.merge(part.Stats)
	}
	slices.SortFunc(episodes, func(a, b *episode.Episode) int { return a.Index - b.Index })
	return episodes, nil
}

// round is one call of Play.
type round struct {
	player *Player
	plan   Plan
	seats  []*seat
	live   int              // episodes not finished
	asked  map[uint64]*seat // by request id: replies being sampled
	away   int              // seats that are with the crew
	step   time.Duration    // of the last sampling step
	stats  Stats
}

func (r *round) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	crew := newCrew(ctx, min(len(r.seats), r.player.rollout.EnvWorkers), len(r.seats))
	defer func() {
		cancel()
		crew.close()
		err = errors.Join(err, r.release())
	}()
	for _, s := range r.seats {
		r.send(crew, s, s.open)
	}
	for r.live > 0 {
		if err := r.collect(ctx, crew); err != nil {
			return err
		}
		if len(r.asked) > 0 {
			if err := r.sample(crew); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) send(crew *crew, s *seat, run func(context.Context) error) {
	r.away++
	crew.do(s, run)
}

// patience is the share of a sampling step that is spent waiting for environments. Most take much less than that to
// answer, and an episode that just misses a step waits for the whole of it.
const patience = 1.0 / 50

// collect takes the seats whose environments are done with the last reply and asks for their next. It waits for them
// only if there is nothing to sample meanwhile, but for a moment.
func (r *round) collect(ctx context.Context, crew *crew) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	moment := time.NewTimer(time.Duration(patience * float64(r.step)))
	defer moment.Stop()
	for r.away > 0 {
		select {
		case done := <-crew.done:
			if err := r.advance(done); err != nil {
				return err
			}
			continue
		default:
		}
		expired := moment.C
		if len(r.asked) == 0 {
			expired = nil
		}
		begun := time.Now()
		select {
		case done := <-crew.done:
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

func (r *round) advance(done result) error {
	r.away--
	if done.err != nil {
		return done.err
	}
	s := done.seat
	if s.stop == "" {
		request := r.player.request(r.plan, s)
		if err := r.player.driver.Submit(request); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		r.asked[request.ID] = s
		r.stats.PromptTokens += len(request.Prompt)
		return nil
	}
	r.live--
	if r.plan.Progress != nil {
		r.plan.Progress(len(r.seats)-r.live, len(r.seats))
	}
	return nil
}

// sample advances all replies by a step and hands the finished ones to the crew.
func (r *round) sample(crew *crew) error {
	begun := time.Now()
	outputs, err := r.player.driver.Step()
	r.step = time.Since(begun)
	r.stats.Generation += r.step
	if err != nil {
		return err
	}
	for _, out := range outputs {
		s := r.asked[out.ID]
		delete(r.asked, out.ID)
		if out.Finish == torch.FinishAbort || len(out.Tokens) == 0 || len(out.Logprobs) != len(out.Tokens) {
			return fmt.Errorf("%s: the sampler returned %d tokens and %d log-probs (%s), expected a reply",
				s, len(out.Tokens), len(out.Logprobs), out.Finish)
		}
		r.stats.NewTokens += len(out.Tokens)
		r.stats.CachedTokens += out.CachedTokens
		r.send(crew, s, func(ctx context.Context) error { return s.answer(ctx, out.Tokens, out.Logprobs, true) })
	}
	return nil
}

// release leaves nothing behind in the sampler or in the environments when a round ends early.
func (r *round) release() error {
	if r.live == 0 {
		return nil
	}
	for _, s := range r.seats {
		if s.stop == "" {
			s.leave() // its problems do not matter to an interrupted run
		}
	}
	return r.player.driver.Release()
}
