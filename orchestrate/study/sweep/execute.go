package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"gyre/internal/exitcode"
	"gyre/internal/settings"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Options of Execute.
type Options struct {
	Command string // the gyre binary
	Console *metrics.Console
}

// opened is a study with its folder, its experiment, its slots and what is known of its runs. Nothing is changed by
// opening it.
type opened struct {
	study *Study
	base  *config.Config
	slots []slot
	state *state
}

func open(s *Study, k kind) (o *opened, err error) {
	o = &opened{study: s}
	if o.base, err = s.base(); err == nil {
		err = s.begin(k)
	}
	if err == nil {
		o.slots, err = s.deal()
	}
	if err == nil {
		o.state, err = openState(s)
	}
	if err != nil {
		return nil, err
	}
	o.state.Kind = k
	return o, nil
}

// execution is a study that is being run.
type execution struct {
	*opened
	options Options
	log     *resultLog
	trials  []trial // of a search
	rungs   int     // of a search; 0 = this is none

	mu      sync.Mutex
	running map[*Run]*exec.Cmd
	ending  bool // no further run starts
}

// slot is a place for one run at a time.
type slot struct {
	devices []string
	threads int
	label   string // what the devices are
}

// Execute runs what is missing of a study, and writes its summary: also when it is interrupted, of what there is.
func Execute(ctx context.Context, s *Study, o Options) (Summary, error) {
	return execute(ctx, s, o, sweeps, (*execution).stages)
}

func execute(ctx context.Context, s *Study, o Options, k kind,
	work func(*execution, context.Context) error) (Summary, error) {
	if err := s.begin(k); err != nil {
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
	x := &execution{options: o, running: map[*Run]*exec.Cmd{}}
	if x.opened, err = open(s, k); err != nil {
		return Summary{}, err
	}
	for i, label := range deviceLabels(ctx, x.slots) {
		x.slots[i].label = label
	}
	if x.log, err = x.beginLog(); err != nil {
		return Summary{}, err
	}
	failure := work(x, ctx)
	summary, err := x.summarise()
	return summary, errors.Join(failure, err)
}

// deal shares devices and threads among the slots.
func (s *Study) deal() ([]slot, error) {
	n, each := s.Slots, s.DevicesPerRun
	if len(s.Devices) > 0 {
		each = max(each, 1)
		if len(s.Devices) < each {
			return nil, fmt.Errorf("%w: a run needs %d devices, and there are %d", settings.ErrInvalid, each,
				len(s.Devices))
		}
		if n == 0 {
			n = len(s.Devices) / each
		}
		if n*each > len(s.Devices) {
			return nil, fmt.Errorf("%w: %d slots of %d devices need %d, and there are %d", settings.ErrInvalid, n,
				each, n*each, len(s.Devices))
		}
	}
	n = max(n, 1)
	threads := s.ThreadsPerRun
	if threads == 0 {
		threads = max(1, runtime.NumCPU()/n)
	}
	out := make([]slot, n)
	for i := range out {
		out[i].threads = threads
		if len(s.Devices) > 0 {
			out[i].devices = s.Devices[i*each : (i+1)*each]
		}
	}
	return out, nil
}

// stages runs one stage after the other: each starts from the best condition of the one before.
func (x *execution) stages(ctx context.Context) error {
	start := x.study.Start
	for stage := 1; stage <= x.study.Stages(); stage++ {
		only := x.study.OnlyStage
		if only != 0 && stage > only {
			break
		}
		if only != 0 && (stage < only-1 || stage < only && (len(start) > 0 || !x.state.has(stage))) {
			continue
		}
		runs := x.state.of(stage)
		if stage >= only {
			conditions, err := x.study.Plan(stage, start)
			if err != nil {
				return err
			}
			if runs, err = x.state.plan(x.study.runs(x.base, conditions, x.slots[0].threads)); err != nil {
				return err
			}
			if err := x.run(ctx, pending(runs), x.sweepProgress(runs)); err != nil {
				return err
			}
		}
		if stage < x.study.Stages() && stage != only {
			best, ok := x.best(runs)
			if !ok {
				return fmt.Errorf("stage %d: no condition has a result, so there is nothing for stage %d to start from",
					stage, stage+1)
			}
			fmt.Fprintf(x.options.Console, "stage %d: %s is best; stage %d starts from it\n", stage, best.Condition,
				stage+1)
			if len(best.Ties) > 0 {
				fmt.Fprintf(x.options.Console, "stage %d: as good were %s; the first of them in the study counts\n",
					stage, strings.Join(best.Ties, ", "))
			}
			start = best.Setting
		}
	}
	return nil
}

// pending gives out the runs that are missing, those that have failed already after all others.
func pending(runs []*Run) func(bool) *Run {
	return func(bool) (first *Run) {
		for _, r := range runs {
			if r.Status == Pending && (first == nil || r.Attempts < first.Attempts) {
				first = r
			}
		}
		return first
	}
}

// runs lists the runs of conditions, seed by seed, so that an unfinished study can be compared already.
func (s *Study) runs(base *config.Config, conditions []Condition, threads int) []*Run {
	if len(s.Devices) > 0 { // run.threads is of each rank, and a run has a rank on each device
		threads = max(1, threads/max(s.DevicesPerRun, 1))
	}
	var out []*Run
	for seed := 1; seed <= s.Seeds; seed++ {
		for _, c := range conditions {
			dir := s.runDir(c, seed)
			overrides := append([]string{}, s.Set...)
			overrides = append(overrides, c.Overrides...)
			overrides = append(overrides, s.Override...)
			overrides = append(overrides, seedOverrides(base, seed)...)
			// Threads may change the order of sums: they belong to what a run is.
			overrides = append(overrides, fmt.Sprintf("run.threads=%d", threads), "run.output="+filepath.Dir(dir),
				"run.name="+filepath.Base(dir))
			out = append(out, &Run{Condition: c.Label, Seed: seed, Stage: c.Stage, Dir: dir, Status: Pending,
				Log: s.logFile(c, seed), Overrides: overrides,
				Setting: c.Overrides, Coordinates: c.Coordinates, Line: c.Line})
		}
	}
	return out
}

// run fills the slots with what next gives until it gives nothing and nothing is under way, or the study is asked to
// end. next is told whether any run is under way, whose end may change its answer; the state is locked for it.
func (x *execution) run(ctx context.Context, next func(busy bool) *Run, count progress) error {
	stop := interrupt.Graceful(ctx)
	done := make(chan struct{})
	var owned sync.WaitGroup
	owned.Go(func() { x.watch(ctx, stop, done) })
	owned.Go(func() { x.show(count, done) })
	var turn sync.Mutex
	changed := sync.NewCond(&turn)
	underWay := 0
	var failure error
	work := func(place slot) {
		turn.Lock()
		defer turn.Unlock()
		for {
			r, err := x.take(next, underWay > 0, place)
			if r != nil && err == nil {
				underWay++
				turn.Unlock()
				err = x.one(r, place)
				turn.Lock()
				underWay--
				changed.Broadcast()
			}
			switch {
			case err != nil:
				failure = errors.Join(failure, err)
				x.end(nil)
				return
			case r == nil && underWay == 0:
				changed.Broadcast()
				return
			case r == nil:
				changed.Wait()
			}
		}
	}
	var workers sync.WaitGroup
	for _, place := range x.slots {
		workers.Go(func() { work(place) })
	}
	workers.Wait()
	close(done)
	owned.Wait()
	if failure != nil {
		return failure
	}
	if cause := interrupt.Cause(ctx); cause != nil {
		return cause
	}
	return ctx.Err()
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
func (x *execution) one(r *Run, place slot) error {
	if status, ok := outcomeOnDisk(r); ok { // it ended, and the study was killed before it could write that down
		return x.settle(r, status)
	}
	begin := time.Now()
	code, message, started, err := x.process(r, place)
	if err != nil {
		return err
	}
	if started {
		took := time.Since(begin).Seconds()
		if err := x.state.change(func() { r.Seconds, r.ExitCode = r.Seconds+took, code }); err != nil {
			return err
		}
	}
	switch {
	case !started || x.ended() && code != 0 && code != exitcode.StoppedEarly:
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
			text += fmt.Sprintf(" at step %d with %s", r.Target, short(score))
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
			line = x.log.line(r) // now: as soon as others see it, a search may let it go on
		}
	})
	if err != nil || line == "" {
		return err
	}
	return x.log.ended(r, line)
}

// spent tells whether no further run may start.
func (x *execution) spent() bool {
	if x.ended() {
		return true
	}
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
