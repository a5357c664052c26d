package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/loop/versions"
	"gyre/torch"
)

// Window plays the batches of coming training steps while the steps before them are trained. Batch n has the groups
// that it always has. One of step n may begin when n-1-staleness steps are done, so that no token is older when it is
// trained on; a step that takes several batches only takes them earlier. The window reaches ahead only as far as the
// trainer waits for environments, so that tokens are no older than waiting makes them: where nothing waits, and nobody
// else computes meanwhile, each step plays its own batch.
//
// It belongs to the trainer's goroutine. Replies grow between two passes of the trainer's models (Between), always
// under the weights that the step began with; environments answer meanwhile on goroutines of their own. Before the
// weights change (Changing) all requests are taken back from the sampler. They go on under the new weights, which
// compute keys and values again unless they are kept.
type Window struct {
	WindowOptions
	ctx    context.Context
	player *Player
	floor  *floor
	depth  int       // batches that are begun ahead of the present one: as many as Staleness, at most
	rounds []*round  // of the next steps, in their order
	batch  int       // of the present step
	fresh  bool      // at the beginning of the present step all keys and values under way were computed again
	left   time.Time // when the trainer last went on
	last   time.Time // when it last had a batch
	spent  Background
}

// WindowOptions say how far a window reaches.
type WindowOptions struct {
	Staleness int                  // training steps between drawing a token and training on it, at most
	Plan      func(batch int) Plan // of training
	First     int                  // the next batch
	Last      int                  // step of the run; the last batch where a run is repeated
	Finish    bool                 // replies are completed before the weights change
	Keep      bool                 // they go on from keys and values of older weights, until somebody else samples
	Schedule  *versions.Schedule   // of a run that is repeated: what weights draw what; nil: it comes as it comes
	// Of processes that divide the groups of each batch this is one: 0 of 0 plays all of them.
	Process, Processes int
}

// Background is what happened in the background of a step: beside its update.
type Background struct {
	Sampled time.Duration // replies grew
	Blocked time.Duration // replies could have grown, but the trainer computed
}

// share is how long replies may grow after a pass of the trainer, in lengths of that pass.
const share = 1.0

// NewWindow makes a window whose environments are called until the end of ctx. Close it.
func NewWindow(ctx context.Context, p *Player, o WindowOptions) (*Window, error) {
	driver, own := p.source.(*generation.Driver)
	if own {
		_, own = driver.Engine.(*torch.Engine)
	}
	if !own {
		return nil, errors.New("batches are played ahead with an engine of the run's own (rollout.staleness), and " +
			"this run's is shared or another program's")
	}
	w := &Window{WindowOptions: o, ctx: ctx, player: p, last: time.Now()}
	if o.Processes > 0 { // the trainer's processor is another's
		w.depth = min(1, o.Staleness)
	}
	w.floor = newFloor(ctx, p, (o.Staleness+1)*o.Plan(o.First).Episodes())
	w.floor.still, w.floor.driver, w.floor.keeps = true, driver, o.Keep
	return w, nil
}

// Close ends the environments' calls and leaves nothing in the sampler.
func (w *Window) Close() error {
	if w == nil {
		return nil
	}
	var all []*runner
	for _, r := range w.rounds {
		all = append(all, r.runners[:r.started]...)
	}
	return w.floor.close(all)
}

// Next plays until the next batch, which a step takes, is complete, and returns it as Play does.
func (w *Window) Next(ctx context.Context, step, batch int) (episodes []*episode.Episode, stats Stats, err error) {
	share, err := w.Share(ctx, step, batch)
	if err == nil {
		episodes, stats, err = w.Batch(w.player, step, batch, []Share{share})
	}
	if err != nil {
		return nil, Stats{}, fmt.Errorf("playing step %d (%s): %w", step, Train, err)
	}
	return episodes, stats, nil
}

// Batch makes the batch that a step takes of its shares, and compares it where a run is repeated.
func (o WindowOptions) Batch(p *Player, step, batch int, shares []Share) ([]*episode.Episode, Stats, error) {
	plan := o.Plan(batch)
	plan.Step = step
	episodes, stats, err := p.Batch(plan, shares)
	if err == nil && o.Schedule != nil {
		err = o.Schedule.Check(batch, plan.Episodes(), episodes)
	}
	return episodes, stats, err
}

// Share plays until this process's part of the next batch, which a step takes, is complete.
func (w *Window) Share(ctx context.Context, step, batch int) (Share, error) {
	sampled, waited := w.floor.sampled, w.floor.waited
	w.batch = batch
	r, err := w.enter(step)
	if err != nil {
		return Share{}, err
	}
	early := r.live == 0
	for !w.complete(r) {
		if r.live > 0 || w.floor.busy() {
			if err := w.play(ctx, step); err != nil {
				return Share{}, err
			}
		}
		if r.live == 0 {
			if err := w.again(ctx, r); err != nil {
				return Share{}, err
			}
		}
	}
	r.stats.Generation, r.stats.EnvWait = w.floor.sampled-sampled, w.floor.waited-waited
	w.reach(early, r.stats.EnvWait)
	w.rounds, w.left, r.plan.Step = w.rounds[1:], time.Now(), step
	return r.share(), nil
}

// complete tells whether a round has all of its episodes, and, where a run is repeated, whether all others have what
// the present weights drew of them.
func (w *Window) complete(r *round) bool {
	return r.settled && r.live == 0 && (w.Schedule == nil || !w.floor.busy())
}

// play does what there is to do at the moment.
func (w *Window) play(ctx context.Context, step int) error {
	if err := w.admit(step); err != nil {
		return err
	}
	if r := w.rounds[0]; r.live > 0 && !w.floor.busy() {
		return fmt.Errorf("%d episodes wait for weights to come: the schedule is another run's", r.live)
	}
	return w.floor.turn(ctx)
}

// noticed is the share of a step that the trainer may wait for environments before the window reaches further.
const noticed = 0.02

// reach goes a batch further ahead where the trainer has waited, and a batch less where the next one was there before
// it was asked for.
func (w *Window) reach(early bool, waited time.Duration) {
	step := time.Since(w.last)
	w.last = time.Now()
	switch {
	case early && w.depth > 1: // the last batch ahead is what hides the waiting
		w.depth--
	case waited > time.Duration(noticed*float64(step)):
		w.depth = min(w.depth+1, w.Staleness)
	}
}

// enter lets replies go on under the weights of a step, and begins its batch.
func (w *Window) enter(step int) (*round, error) {
	if w.floor.version != step-1 {
		if err := w.floor.withdraw(); err != nil {
			return nil, err
		}
	}
	if w.floor.still {
		if err := w.follow(step); err != nil {
			return nil, err
		}
		w.fresh = w.floor.fresh
		if err := w.floor.resume(step - 1); err != nil {
			return nil, err
		}
	}
	if len(w.rounds) == 0 {
		if err := w.begin(w.batch); err != nil {
			return nil, err
		}
	}
	r := w.rounds[0]
	if r.plan.Batch != w.batch {
		return nil, fmt.Errorf("batch %d is under way, expected %d", r.plan.Batch, w.batch)
	}
	w.start(r, len(r.runners))
	return r, w.admit(step)
}

// follow gives up keys and values where the run that is repeated has done so.
func (w *Window) follow(step int) error {
	if w.Schedule == nil || !w.Keep {
		return nil
	}
	then := w.Schedule.Fresh(step)
	if then && !w.floor.fresh {
		return w.floor.forget()
	}
	drafts := slices.ContainsFunc(w.floor.ready, func(one *runner) bool { return len(one.draft.IDs) > 0 })
	if !then && w.floor.fresh && drafts {
		return errors.New("replies go on from keys and values of older weights in the run that is repeated, which " +
			"are gone here: save, validate and analyse at the steps of that run")
	}
	return nil
}

// begin makes the round of a batch. Nobody plays yet.
func (w *Window) begin(batch int) error {
	plan := w.Plan(batch)
	runners, err := w.player.runners(plan)
	if err != nil {
		return err
	}
	runners = slices.DeleteFunc(runners, func(one *runner) bool { return one.group%max(w.Processes, 1) != w.Process })
	for _, one := range runners {
		if one.pool.outside != nil {
			return fmt.Errorf("environment %s: programs outside play when the weights stand still: set "+
				"rollout.staleness = 0", one.source.Tag)
		}
	}
	r := &round{player: w.player, plan: plan, runners: runners, attempt: 1, requests: uint64(batch) << 32}
	for _, one := range runners {
		one.round = r
		if w.Schedule != nil {
			var known bool
			one.entry.given, one.entry.diverging = true, w.Schedule.Diverging
			if one.entry.runs, known = w.Schedule.Runs(batch, plan.Episodes(), one.index); !known {
				one.recall(failure{Stop: episode.Error, Problem: "it failed in the run that is repeated"})
			}
		}
	}
	w.rounds = append(w.rounds, r)
	return nil
}

// start sends the runners of a round before the end-th to the workers, as far as they have not been there.
func (w *Window) start(r *round, end int) {
	var own []*runner
	for ; r.started < end; r.started++ {
		if one := r.runners[r.started]; !one.over {
			own = append(own, one)
		}
	}
	r.start(w.floor, own, open)
}

// admit begins groups of later batches while the sampler has room for them, or, where a run is repeated, the batches
// that it had begun.
func (w *Window) admit(step int) error {
	room := len(w.rounds[0].runners)
	for repeat := w.Schedule != nil; repeat || w.floor.active() < room; {
		r := w.rounds[len(w.rounds)-1]
		if r.started == len(r.runners) {
			next := r.plan.Batch + 1
			end := w.batch + min(w.depth, w.Last-step)
			if repeat {
				end = min(w.batch+w.Staleness, w.Last)
			}
			if next > end || repeat && w.Schedule.Begins(next, r.plan.Episodes()) > w.floor.version {
				return nil
			}
			if err := w.begin(next); err != nil {
				return err
			}
			continue
		}
		end := r.started + 1
		for ; end < len(r.runners) && r.runners[end].group == r.runners[r.started].group; end++ {
		}
		w.start(r, end)
	}
	return nil
}

// again begins second attempts at the episodes of a round that failed.
func (w *Window) again(ctx context.Context, r *round) error {
	switch {
	case r.settled:
	case w.Schedule != nil: // what failed may not fail today
		r.settled = true
		r.settle(r.runners)
		r.stats.Replayed = 0
	case r.attempt >= 2:
		r.settled = true
		r.settle(slices.DeleteFunc(slices.Clone(r.runners), func(one *runner) bool { return one.attempt < 2 }))
	default:
		failed, err := r.again(ctx)
		if err == nil {
			r.start(w.floor, failed, open)
		}
		return err
	}
	return nil
}

// Between lets replies grow between two passes of the trainer's models, for as long as the pass before it took.
func (w *Window) Between(ctx context.Context) error {
	f, pass, begun := w.floor, time.Since(w.left), time.Now()
	if w.Schedule != nil || f.still || len(w.rounds) == 0 {
		return nil
	}
	if len(f.requests) > 0 {
		w.spent.Blocked += pass
	}
	for {
		for more := true; more; {
			var err error
			if more, err = f.arrived(); err != nil {
				return err
			}
		}
		if err := w.admit(f.version + 1); err != nil {
			return err
		}
		// Few rows cost nearly as much as many: replies wait until as many ask as are away.
		if len(f.requests) <= f.away || time.Since(begun) >= time.Duration(share*float64(pass)) {
			break
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := f.sample(); err != nil {
			return err
		}
	}
	w.left = time.Now()
	w.spent.Sampled += w.left.Sub(begun)
	return nil
}

// PlayWhile lets wait wait for others, and plays meanwhile what may be played under the present weights: for a process
// whose sampler has a machine of its own. It is followed by Share, or by Pause. A window that is nil only waits.
func (w *Window) PlayWhile(ctx context.Context, wait func(context.Context) error) error {
	if w == nil {
		return wait(ctx)
	}
	waiting, end := context.WithCancel(ctx) // which ends the wait where playing fails
	defer end()
	playing, over := context.WithCancel(waiting)
	result, f := make(chan error, 1), w.floor
	go func() { // ends with wait, which its context ends; all ways out of here have received its result
		defer over()
		result <- wait(waiting)
	}()
	begun, sampled := time.Now(), f.sampled
	for w.Schedule == nil && !f.still && len(w.rounds) > 0 && playing.Err() == nil {
		err := w.admit(f.version + 1)
		if err == nil && !f.busy() {
			break
		}
		if err == nil {
			err = f.turn(playing)
		}
		if err != nil && !errors.Is(err, context.Cause(playing)) {
			end()
			<-result
			return err
		}
	}
	err := <-result
	w.spent.Sampled += f.sampled - sampled
	w.spent.Blocked += time.Since(begun) - (f.sampled - sampled)
	return err
}

// Changing is told that the weights are about to change.
func (w *Window) Changing() error {
	for f := w.floor; w.Finish && !f.still && len(f.requests) > 0; {
		if err := w.ctx.Err(); err != nil {
			return context.Cause(w.ctx)
		}
		begun := time.Now()
		if err := f.sample(); err != nil {
			return err
		}
		w.spent.Sampled += time.Since(begun)
	}
	return w.floor.withdraw()
}

// Pause takes all requests back from the sampler, for others to use it or to write down what is under way. They go on
// with the next step, from keys and values that are computed again. A window that is nil has none.
func (w *Window) Pause() error {
	if w == nil {
		return nil
	}
	if err := w.floor.withdraw(); err != nil {
		return err
	}
	return w.floor.forget()
}

// Fresh tells whether at the beginning of the present step all keys and values under way were computed again.
func (w *Window) Fresh() bool { return w.fresh }

// Spent is what has happened beside the update since the last call.
func (w *Window) Spent() (s Background) {
	if len(w.floor.ready) > 0 && w.Processes == 0 {
		w.spent.Blocked += time.Since(w.left)
	}
	w.left = time.Now()
	s, w.spent = w.spent, Background{}
	return s
}
