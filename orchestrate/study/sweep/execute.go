package sweep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"gyre/internal/exitcode"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Options of Execute.
type Options struct {
	Command string // the gyre binary
	Console *metrics.Console
	// Here does in this process what gyre train does with a configuration and overrides until a step, in turns with
	// others on one base: it tells log what went wrong, and gives the exit code. For studies of a shared base.
	Here func(ctx context.Context, log io.Writer, base string, overrides []string, until int) (code int, err error)
}

// execution is a study with its folder, its experiment, its slots and what is known of its runs.
type execution struct {
	study   *Study
	base    *config.Config
	slots   []slot
	state   *state
	options Options
	trials  []trial // of a search
	rungs   int     // of a search; 0 = this is none
}

// open prepares a sweep or a search, and changes nothing.
func open(s *Study, k Kind) (*execution, error) {
	base, err := s.base()
	if err != nil {
		return nil, err
	}
	known, err := s.begin(k)
	if err != nil {
		return nil, err
	}
	slots, err := s.deal()
	if err != nil {
		return nil, err
	}
	known.Kind = k
	return &execution{study: s, base: base, slots: slots, state: known}, nil
}

// Execute runs what is missing of a sweep or a search, and writes its summary: also when it is interrupted, of what
// there is.
func Execute(ctx context.Context, s *Study, k Kind, o Options) (Summary, error) {
	if _, err := s.begin(k); err != nil {
		return Summary{}, err
	}
	if err := os.MkdirAll(s.Dir(), 0o755); err != nil {
		return Summary{}, err
	}
	lock, err := rundir.Lock(s.Dir())
	if err != nil {
		return Summary{}, err
	}
	defer lock.Close()
	x, err := open(s, k)
	if err != nil {
		return Summary{}, err
	}
	x.options = o
	for i, label := range deviceLabels(ctx, x.slots) {
		x.slots[i].label = label
	}
	if err := x.beginLog(); err != nil {
		return Summary{}, err
	}
	work := x.stages
	if k == Searches {
		work = x.search
	}
	failure := work(ctx)
	summary, err := x.summarise()
	return summary, errors.Join(failure, err)
}

// progress says how many steps of how many some runs have done.
type progress struct {
	label string
	total int // of a search, the steps that its rule takes when every rung is full
	runs  []*Run
}

// done counts the steps. A run of a sweep that is over counts as done, whatever its last step.
func (x *execution) done(p progress) (n int) {
	x.state.mu.Lock()
	defer x.state.mu.Unlock()
	for _, r := range p.runs {
		if r.Target == 0 && r.Over() {
			n += r.steps
		} else {
			n += min(metrics.LastStep(r.Dir), cmp.Or(r.Target, r.steps))
		}
	}
	return min(n, p.total)
}

// run fills the slots with what next gives until it gives nothing and nothing is under way, or the study is asked to
// end: then the runs finish their step and save. next is told whether any run is under way, whose end may change its
// answer; the state is locked for it.
func (x *execution) run(ctx context.Context, next func(busy bool) *Run, p progress) (failure error) {
	bar := x.options.Console.Bar(p.label, p.total)
	defer bar.Close()
	every := time.NewTicker(time.Second)
	defer every.Stop()
	type end struct {
		place slot
		err   error
	}
	ended, free := make(chan end), slices.Clone(x.slots)
	stop, over := interrupt.Graceful(ctx), ctx.Done()
	ending, interruptRuns := context.WithCancel(context.Background())
	defer interruptRuns()
	for {
		for len(free) > 0 && failure == nil && ending.Err() == nil {
			place := free[0]
			r, err := x.take(next, len(free) < len(x.slots), place)
			if failure = err; r == nil || err != nil {
				break
			}
			free = free[1:]
			// It ends with its run, which interruptRuns asks to; the loop goes on until all have.
			go func() { ended <- end{place, x.one(ending, r, place)} }()
		}
		bar.Set(x.done(p))
		if len(free) == len(x.slots) {
			return cmp.Or(failure, interrupt.Cause(ctx), ctx.Err())
		}
		select {
		case e := <-ended:
			free, failure = append(free, e.place), errors.Join(failure, e.err)
		case <-stop:
			stop = nil
			interruptRuns()
		case <-over:
			over = nil
			interruptRuns()
		case <-every.C:
		}
	}
}

// take marks the next run as running; nil when none may start.
func (x *execution) take(next func(busy bool) *Run, busy bool, place slot) (r *Run, err error) {
	if x.spent() {
		return nil, nil
	}
	x.state.mu.Lock()
	defer x.state.mu.Unlock()
	if r = next(busy); r == nil {
		return nil, nil
	}
	r.Status, r.Devices = Running, place.label
	return r, x.state.write()
}

// one takes a run as far as it goes.
func (x *execution) one(ctx context.Context, r *Run, place slot) error {
	if status, ok := outcomeOnDisk(r); ok { // it ended, and the study was killed before it could write that down
		return x.settle(r, status)
	}
	if x.awaitOrphan(ctx, r); ctx.Err() != nil {
		return x.settle(r, Pending)
	}
	begin := time.Now()
	start := x.process
	if x.study.SharedBase {
		start = x.here
	}
	code, err := start(ctx, r, place)
	switch {
	case err != nil && ctx.Err() != nil: // it has not begun
		return x.settle(r, Pending)
	case err != nil:
		return err
	}
	took := time.Since(begin).Seconds()
	if err := x.state.change(func() { r.Seconds, r.ExitCode = r.Seconds+took, code }); err != nil {
		return err
	}
	message := strings.Join(lastLines(r.Log, 1), "")
	switch {
	case ctx.Err() != nil && code != 0 && code != exitcode.StoppedEarly:
		return x.settle(r, Pending)
	case code == exitcode.StoppedEarly:
		return x.settle(r, StoppedEarly)
	case code == 0:
		if status, ok := outcomeOnDisk(r); ok {
			return x.settle(r, status)
		}
		message = "it ended, and run.json does not say that it is done"
	}
	final := code == exitcode.Usage || code == exitcode.Diverged || r.Attempts >= x.study.Retries
	status, what := Pending, "failed and is tried again"
	if final {
		status, what = Failed, "failed"
	}
	fmt.Fprintf(x.options.Console, "%s, seed %d %s (exit code %d): %s\n", r.Condition, r.Seed, what, code, message)
	return x.change(r, func() {
		r.Attempts++
		r.Error, r.Status = message, status
	})
}

// settle writes down how a run ended; one that reached a rung of a search has a score there.
func (x *execution) settle(r *Run, status Status) error {
	score := 0.0
	rung := r.Target > 0 && (status == Paused || status == Finished)
	if rung {
		var ok bool
		if score, ok = x.study.score(newRow(r, x.study.Objective), true); !ok {
			fmt.Fprintf(x.options.Console, "%s, seed %d has no %s at step %d\n", r.Condition, r.Seed,
				x.study.objective(), r.Target)
			return x.change(r, func() { r.Error, r.Status = "no "+x.study.objective()+" was logged", Failed })
		}
	}
	if status != Pending {
		text := strings.ReplaceAll(string(status), "_", " ")
		if rung {
			text += fmt.Sprintf(" at step %d with %.3g", r.Target, score)
		}
		fmt.Fprintf(x.options.Console, "%s, seed %d: %s\n", r.Condition, r.Seed, text)
	}
	return x.change(r, func() {
		r.Status, r.Error = status, ""
		if rung {
			r.Scores = append(r.Scores[:r.Rung], score)
		}
	})
}

// change writes down how far a run came, and if it ended, what it took.
func (x *execution) change(r *Run, apply func()) error {
	line := ""
	err := x.state.change(func() {
		if apply(); r.Status != Pending {
			line = x.study.line(r) // now: as soon as others see it, a search may let it go on
		}
	})
	if err != nil || line == "" {
		return err
	}
	return x.logRun(r, line)
}

// spent tells whether the budget allows no further run.
func (x *execution) spent() bool {
	if x.study.BudgetHours == 0 {
		return false
	}
	x.state.mu.Lock()
	defer x.state.mu.Unlock()
	total := 0.0
	for _, r := range x.state.Runs {
		total += r.Seconds
	}
	return total >= x.study.BudgetHours*3600
}
