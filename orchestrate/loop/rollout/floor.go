package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gyre/orchestrate/loop/generation"
	"gyre/torch"
)

// floor is where episodes are played, of one round or of several: one loop that samples replies, and workers that call
// environments. It belongs to one goroutine.
type floor struct {
	player   *Player
	cancel   context.CancelFunc
	workers  *workers
	version  int                // of the weights: training steps that have changed them
	driver   *generation.Driver // of a window, whose requests are withdrawn
	requests map[uint64]*runner // by request id: replies being sampled
	ready    []*runner          // whose next reply nobody has asked for yet
	still    bool               // nobody asks: the weights are about to change, or the engine is another's
	keeps    bool               // replies go on from keys and values of older weights
	fresh    bool               // those of the replies that wait have been given up since the last resume
	away     int                // runners that are with the workers
	opening  int                // those of them whose first prompt is not there yet
	step     time.Duration      // of the last sampling step
	sampled  time.Duration      // in the sampler
	waited   time.Duration      // waiting for environments
}

// newFloor starts workers for so many episodes at once.
func newFloor(ctx context.Context, p *Player, episodes int) *floor {
	ctx, cancel := context.WithCancel(ctx)
	return &floor{player: p, cancel: cancel, workers: startWorkers(ctx, p.rollout.EnvWorkers, episodes),
		requests: map[uint64]*runner{}}
}

// close ends the workers. Of episodes that are not over it leaves nothing behind in the sampler or in the environments.
func (f *floor) close(runners []*runner) error {
	f.cancel()
	f.workers.running.Wait()
	for _, one := range runners {
		if !one.over {
			one.leave() // what goes wrong in this does not matter to an interrupted run
		}
	}
	if f.sampling() {
		return f.player.giveUp(errors.New("the episodes of this step are over"))
	}
	return nil
}

// sampling tells whether there is a reply to sample, for an episode or for the gateway.
func (f *floor) sampling() bool {
	return len(f.requests) > 0 || f.player.gateway != nil && f.player.driver.Unfinished() > 0
}

func (f *floor) send(one *runner, run func(context.Context) error) {
	f.away++
	f.workers.do(one, run)
}

// turn takes what environments have said and advances all replies by a step. It waits if there is nothing else to do.
func (f *floor) turn(ctx context.Context) error {
	if err := f.collect(ctx); err != nil {
		return err
	}
	if f.sampling() {
		return f.sample()
	}
	return nil
}

// patience is the share of a sampling step that is spent waiting for environments. Most take much less than that to
// answer, and an episode that just misses a step waits for the whole of it.
const patience = 1.0 / 50

// collect takes the runners whose environments are done with the last reply and asks for their next. It waits for them
// only if there is nothing to sample meanwhile, but for a moment.
func (f *floor) collect(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	moment := time.NewTimer(time.Duration(patience * float64(f.step)))
	defer moment.Stop()
	for f.away > 0 {
		if done, err := f.arrived(); err != nil {
			return err
		} else if done {
			continue
		}
		expired := moment.C
		if !f.sampling() {
			expired = nil
		}
		begun := time.Now()
		select {
		case done := <-f.workers.done:
			f.waited += time.Since(begun)
			if err := f.advance(done); err != nil {
				return err
			}
		case event := <-f.player.guests():
			f.waited += time.Since(begun)
			event()
		case <-expired:
			f.waited += time.Since(begun)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// arrived takes one runner that is back already, if there is one.
func (f *floor) arrived() (bool, error) {
	select {
	case done := <-f.workers.done:
		return true, f.advance(done)
	default:
		return false, nil
	}
}

// persistence is how often an episode is tried whose environment did not fail in the run that is repeated.
const persistence = 100

// advance asks for a runner's next reply, unless its episode has ended.
func (f *floor) advance(done result) error {
	f.away--
	if done.err != nil {
		return done.err
	}
	one := done.runner
	if !one.asked {
		one.asked = true
		f.opening--
	}
	if one.over && one.failed() && one.entry.given && one.attempt < persistence {
		one.revive(f)
		return nil
	}
	if one.over {
		one.ended, one.draft = true, drawn{}
		one.round.finished()
		return nil
	}
	return f.ask(one)
}

// active counts the episodes that the sampler has something to do for, or will have at once.
func (f *floor) active() int { return len(f.requests) + len(f.ready) + f.opening }

// busy reports whether anybody is at work.
func (f *floor) busy() bool { return len(f.requests)+f.away > 0 }

// ask submits the request for an episode's pending reply, or for the rest of it, unless it has to wait.
func (f *floor) ask(one *runner) error {
	request := f.player.request(one)
	allowed, err := one.entry.allows(len(one.transcript.ids)+len(one.draft.IDs), f.version)
	if err != nil {
		return fmt.Errorf("%s: %w", one, err)
	}
	if f.still || allowed == 0 {
		f.ready = append(f.ready, one)
		return nil
	}
	cut := allowed < request.Sampling.MaxTokens-len(one.draft.IDs)
	request.Sampling.MaxTokens = min(request.Sampling.MaxTokens, len(one.draft.IDs)+allowed)
	if f.keeps {
		request.Keep, request.Kept = torch.KeepAborted, one.kept
		if cut {
			request.Keep = torch.KeepCut
		}
		one.older, one.kept = one.kept, false
	}
	if err := f.player.source.Submit(request); err != nil {
		return fmt.Errorf("%s: %w", one, err)
	}
	f.requests[request.ID] = one
	if len(one.draft.IDs) == 0 {
		one.traced.Ask(request.Sampling.MaxTokens, request.Sampling.Temperature)
	}
	return nil
}

// resume asks for all that wait, under weights of a version.
func (f *floor) resume(version int) error {
	ready := f.ready
	f.ready, f.version, f.still, f.fresh = nil, version, false, false
	for _, one := range ready {
		if err := f.ask(one); err != nil {
			return err
		}
	}
	return nil
}

// withdraw takes all requests back from the sampler: what it has drawn becomes the beginning of replies that go on
// later. Nobody asks until resume.
func (f *floor) withdraw() error {
	f.still = true
	if len(f.requests) == 0 {
		return nil
	}
	outputs, err := f.driver.Withdraw(slices.Sorted(maps.Keys(f.requests)))
	if err != nil {
		return err
	}
	for _, out := range outputs {
		one := f.requests[out.ID]
		delete(f.requests, out.ID)
		one.draw(out, f.version)
		one.kept = out.Kept
		f.ready = append(f.ready, one)
	}
	return nil
}

// forget gives up the keys and values of the replies that wait.
func (f *floor) forget() error {
	if !f.keeps {
		return nil
	}
	f.fresh = true
	for _, one := range f.ready {
		one.kept = false
	}
	return f.driver.Engine.(*torch.Engine).Forget()
}

// sample advances all replies by a step and hands the finished ones to the workers.
func (f *floor) sample() error {
	begun := time.Now()
	outputs, err := f.player.source.Step()
	f.step = time.Since(begun)
	f.sampled += f.step
	if err != nil {
		return err
	}
	for _, out := range outputs {
		one := f.requests[out.ID]
		if one == nil { // nobody else submits
			f.player.gateway.Finished(out)
			continue
		}
		delete(f.requests, out.ID)
		if out.Finish == torch.FinishAbort || len(out.Tokens) == 0 ||
			out.Logprobs != nil && len(out.Logprobs) != len(out.Tokens) { // a server's may not be known
			return fmt.Errorf("%s: the sampler returned %d tokens and %d log-probs (%s), expected a reply",
				one, len(out.Tokens), len(out.Logprobs), out.Finish)
		}
		before := len(one.draft.IDs)
		one.draw(out, f.version)
		if before == 0 {
			one.round.stats.CachedTokens += out.CachedTokens
		}
		if goesOn, err := one.entry.allows(len(one.transcript.ids)+len(out.Tokens)-1, f.version); err != nil {
			return fmt.Errorf("%s: %w", one, err)
		} else if goesOn == 1 && out.Finish == torch.FinishLength && len(out.Tokens) < one.maxTokens() {
			one.kept = out.Kept
			f.ready = append(f.ready, one) // the rest is another version's
			continue
		}
		reply := one.draft
		one.count(len(reply.IDs))
		one.traced.Answered(one.transcript.length(), out.CachedTokens, len(reply.IDs), out.Finish.String())
		one.draft, one.older, one.replies = drawn{}, false, append(one.replies, reply)
		f.send(one, func(ctx context.Context) error { return one.answer(ctx, reply.IDs, reply.Logprobs, true) })
	}
	return nil
}
