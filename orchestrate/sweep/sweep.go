package sweep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/interrupt"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rundir"
)

// Exit codes of `gyre train` that are no failures, and those that another attempt would only repeat.
const (
	exitStoppedEarly = 5
	exitUsage        = 2
	exitDiverged     = 3
)

// Options of Execute.
type Options struct {
	Command string // the gyre binary
	Ranks   bool   // its train takes --ranks: a run computes on all of its devices, not on the first
	Console *metrics.Console
}

// execution is a study that is being run.
type execution struct {
	study   *Study
	base    *config.Config
	options Options
	state   *state
	slots   []slot

	mu      sync.Mutex
	running map[*Run]*exec.Cmd
	ending  bool // no further run starts
}

// slot is a place for one run at a time.
type slot struct {
	devices []string
	threads int
}

// Execute runs what is missing of a study, and writes its summary: also when it is interrupted, of what there is. It returns the summary's folder.
func Execute(ctx context.Context, s *Study, o Options) (Summary, error) {
	base, err := config.Load(s.BasePath(), nil)
	if err != nil {
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
	x := &execution{study: s, base: base, options: o, running: map[*Run]*exec.Cmd{}}
	if x.slots, err = s.deal(); err != nil {
		return Summary{}, err
	}
	if x.state, err = openState(s); err != nil {
		return Summary{}, err
	}
	if n := len(x.slots[0].devices); n > 1 && !o.Ranks {
		fmt.Fprintf(o.Console, "a run has %d devices and computes on the first of them: gyre train has no ranks yet\n", n)
	}
	failure := x.stages(ctx)
	summary, err := x.summarise()
	return summary, errors.Join(failure, err)
}

// deal shares devices and threads among the slots.
func (s *Study) deal() ([]slot, error) {
	n, each := s.Slots, s.DevicesPerRun
	if len(s.Devices) > 0 {
		each = max(each, 1)
		if len(s.Devices) < each {
			return nil, fmt.Errorf("%w: a run needs %d devices, and there are %d", config.ErrInvalid, each, len(s.Devices))
		}
		if n == 0 {
			n = len(s.Devices) / each
		}
		if n*each > len(s.Devices) {
			return nil, fmt.Errorf("%w: %d slots of %d devices need %d, and there are %d", config.ErrInvalid, n, each, n*each, len(s.Devices))
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
	var start []string
	for stage := 1; stage <= x.study.Stages(); stage++ {
		conditions, err := x.study.Plan(stage, start)
		if err != nil {
			return err
		}
		runs, err := x.state.plan(x.study.runs(x.base, conditions, x.slots[0].threads))
		if err != nil {
			return err
		}
		if err := x.run(ctx, runs); err != nil {
			return err
		}
		if stage < x.study.Stages() {
			best, ok := bestCondition(conditions, runs)
			if !ok {
				return fmt.Errorf("stage %d: no condition has a validation success, so there is nothing for stage %d to start from", stage, stage+1)
			}
			fmt.Fprintf(x.options.Console, "stage %d: %s is best; stage %d starts from it\n", stage, best.Label, stage+1)
			start = best.Overrides
		}
	}
	return nil
}

// runs lists the runs of conditions, seed by seed, so that an unfinished study can be compared already.
func (s *Study) runs(base *config.Config, conditions []Condition, threads int) []*Run {
	var out []*Run
	logs := s.Logs
	if logs == "" {
		logs = filepath.Join(s.Dir(), "logs")
	}
	for seed := 1; seed <= s.Seeds; seed++ {
		for _, c := range conditions {
			name, parent := fmt.Sprintf("seed_%d", seed), filepath.Join(s.Dir(), "runs", c.Folder())
			overrides := append([]string{}, s.Set...)
			overrides = append(overrides, c.Overrides...)
			overrides = append(overrides, seedOverrides(base, seed)...)
			// Threads may change the order of sums: they belong to what a run is.
			overrides = append(overrides, fmt.Sprintf("run.threads=%d", threads), "run.output="+parent, "run.name="+name)
			out = append(out, &Run{Condition: c.Label, Seed: seed, Stage: c.Stage, Dir: filepath.Join(parent, name), Status: Pending,
				Log: filepath.Join(logs, c.Folder(), name+".log"), Overrides: overrides, condition: c})
		}
	}
	return out
}

// run fills the slots until every run is over, or the study is asked to end.
func (x *execution) run(ctx context.Context, runs []*Run) error {
	queue := make(chan *Run, len(runs)*(x.study.Retries+1))
	var open sync.WaitGroup
	for _, r := range runs {
		if !r.over() {
			open.Add(1)
			queue <- r
		}
	}
	stop := interrupt.Graceful(ctx)
	done := make(chan struct{})
	var owned sync.WaitGroup
	owned.Go(func() { x.watch(ctx, stop, done) })
	owned.Go(func() { x.progress(runs, done) })
	failures := make(chan error, len(x.slots))
	var workers sync.WaitGroup
	for _, place := range x.slots {
		workers.Go(func() {
			for r := range queue {
				again, err := x.one(r, place)
				if err != nil {
					failures <- err
					x.end(nil)
				}
				if again {
					queue <- r
					continue
				}
				open.Done()
			}
		})
	}
	open.Wait()
	close(queue)
	workers.Wait()
	close(done)
	owned.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	if cause := interrupt.Cause(ctx); cause != nil {
		return cause
	}
	return ctx.Err()
}

// one takes a run as far as it goes; again is set when it failed and is to be tried once more.
func (x *execution) one(r *Run, place slot) (again bool, err error) {
	if x.spent() {
		return false, nil
	}
	if status, ok := outcomeOnDisk(r.Dir); ok { // it ended, and the study was killed before it could write that down
		return false, x.state.change(func() { r.Status = status })
	}
	begin := time.Now()
	if err := x.state.change(func() { r.Status = Running }); err != nil {
		return false, err
	}
	code, message, started, err := x.process(r, place)
	if err != nil {
		return false, err
	}
	return again, x.state.change(func() {
		if started {
			r.Seconds += time.Since(begin).Seconds()
		}
		r.ExitCode, r.Error = code, ""
		switch {
		case !started || x.ended() && code != 0 && code != exitStoppedEarly:
			r.Status = Pending
		case code == 0:
			r.Status = Finished
		case code == exitStoppedEarly:
			r.Status = StoppedEarly
		default:
			r.Attempts++
			r.Error = message
			final := code == exitUsage || code == exitDiverged || r.Attempts > x.study.Retries
			again = !final
			r.Status = Pending
			if final {
				r.Status = Failed
			}
		}
		if r.Error != "" {
			what := "failed"
			if again {
				what = "failed and is tried again"
			}
			fmt.Fprintf(x.options.Console, "%s, seed %d %s (exit code %d): %s\n", r.Condition, r.Seed, what, code, message)
		} else if r.over() {
			fmt.Fprintf(x.options.Console, "%s, seed %d: %s\n", r.Condition, r.Seed, strings.ReplaceAll(string(r.Status), "_", " "))
		}
	})
}

// outcomeOnDisk is how a run ended according to its own run.json.
func outcomeOnDisk(dir string) (Status, bool) {
	info, err := rundir.ReadInfo(dir)
	if err != nil || info == nil {
		return "", false
	}
	switch info.Status {
	case "done":
		return Finished, true
	case "stopped_early":
		return StoppedEarly, true
	}
	return "", false
}

// process runs gyre train on a run until it ends, and returns its exit code and the last line that it said.
func (x *execution) process(r *Run, place slot) (code int, message string, started bool, err error) {
	if err := os.MkdirAll(filepath.Dir(r.Log), 0o755); err != nil {
		return 0, "", false, err
	}
	log, err := os.OpenFile(r.Log, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 0, "", false, err
	}
	defer log.Close()
	args := append([]string{"train", x.study.BasePath()}, r.Overrides...)
	args = append(args, "--resume")
	cmd := exec.Command(x.options.Command, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GYRE_THREADS=%d", place.threads))
	if len(place.devices) > 0 {
		cmd.Args = append(cmd.Args, "model.device=cuda")
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+strings.Join(place.devices, ","))
		if n := len(place.devices); n > 1 && x.options.Ranks {
			cmd.Args = append(cmd.Args, "--ranks", fmt.Sprint(n))
		}
	}
	fmt.Fprintf(log, "$ %s\n", strings.Join(cmd.Args, " "))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, attributes()
	runtime.LockOSThread() // see attributes
	defer runtime.UnlockOSThread()
	x.awaitOrphan(r)
	if started, err = x.start(r, cmd); !started || err != nil {
		return 0, "", false, err
	}
	waited := cmd.Wait()
	x.mu.Lock()
	delete(x.running, r)
	x.mu.Unlock()
	var exit *exec.ExitError
	if waited != nil && !errors.As(waited, &exit) {
		return 0, "", true, fmt.Errorf("%s: %w", x.options.Command, waited)
	}
	code = cmd.ProcessState.ExitCode()
	if code != 0 {
		message = lastLine(log)
	}
	return code, message, true, nil
}

// awaitOrphan waits for a run's process that a killed study left behind, where the system does not end those.
func (x *execution) awaitOrphan(r *Run) {
	for said := false; exists(r.Dir) && !x.ended(); said = true {
		lock, err := rundir.Lock(r.Dir)
		if err == nil {
			lock.Close()
			return
		}
		if !said {
			fmt.Fprintf(x.options.Console, "%s, seed %d: waiting: %v\n", r.Condition, r.Seed, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// start starts a process unless the study is ending.
func (x *execution) start(r *Run, cmd *exec.Cmd) (bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ending {
		return false, nil
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("starting a run: %w", err)
	}
	x.running[r] = cmd
	return true, nil
}

// watch passes an interruption on to the runs, which finish their step and save.
func (x *execution) watch(ctx context.Context, stop <-chan struct{}, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-stop:
	case <-ctx.Done():
	}
	x.end(syscall.SIGTERM)
}

// end lets no further run start and sends the running ones a signal; nil sends none.
func (x *execution) end(signal os.Signal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ending = true
	for _, cmd := range x.running {
		if signal != nil {
			_ = cmd.Process.Signal(signal) // a process that has just ended needs none
		}
	}
}

func (x *execution) ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ending
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

// lastLine is the last line of a log that says something.
func lastLine(log *os.File) string {
	info, err := log.Stat()
	if err != nil {
		return ""
	}
	reader := bufio.NewScanner(io.NewSectionReader(log, max(0, info.Size()-1<<14), 1<<14))
	last := ""
	for reader.Scan() {
		if line := strings.TrimSpace(reader.Text()); line != "" {
			last = line
		}
	}
	return last
}

// progress shows how many steps of all runs are done.
func (x *execution) progress(runs []*Run, done <-chan struct{}) {
	total, steps := 0, map[*Run]int{}
	for _, r := range runs {
		steps[r] = x.base.Run.Steps
		if c, err := config.Load(x.study.BasePath(), r.Overrides); err == nil {
			steps[r] = c.Run.Steps
		}
		total += steps[r]
	}
	bar := x.options.Console.Bar(fmt.Sprintf("%d runs", len(runs)), total)
	defer bar.Close()
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		count := 0
		x.state.mu.Lock()
		for _, r := range runs {
			if r.over() {
				count += steps[r]
			} else {
				count += min(stepsDone(r.Dir), steps[r])
			}
		}
		x.state.mu.Unlock()
		bar.Set(count)
		select {
		case <-done:
			return
		case <-every.C:
		}
	}
}

// stepsDone is the last step that a run has logged; 0 where that cannot be read.
func stepsDone(dir string) int {
	step, _, _ := metrics.LastStep(filepath.Join(dir, metrics.File))
	return step
}

// Previewed is a run as a dry run lists it.
type Previewed struct {
	Run
	Over bool
	// SecondsPerStep is what steps took: in this run, in others of the study, or in a run of the base; 0 where none was logged.
	SecondsPerStep float64
}

// Preview lists the runs of a study's first stage, and of later ones as far as it got, without changing anything.
func Preview(s *Study) (list []Previewed, slots int, err error) {
	base, err := config.Load(s.BasePath(), nil)
	if err != nil {
		return nil, 0, err
	}
	places, err := s.deal()
	if err != nil {
		return nil, 0, err
	}
	st, err := openState(s)
	if err != nil {
		return nil, 0, err
	}
	conditions, err := s.Plan(1, nil)
	if err != nil {
		return nil, 0, err
	}
	all := secondsPerStep(filepath.Join(base.Run.Output, base.Run.Name))
	for _, r := range st.Runs {
		if v := secondsPerStep(r.Dir); v > 0 {
			all = v
		}
	}
	for _, r := range s.runs(base, conditions, places[0].threads) {
		for _, known := range st.Runs {
			if known.Condition == r.Condition && known.Seed == r.Seed {
				r.Status = known.Status
			}
		}
		p := Previewed{Run: *r, Over: r.over(), SecondsPerStep: secondsPerStep(r.Dir)}
		if p.SecondsPerStep == 0 {
			p.SecondsPerStep = all
		}
		list = append(list, p)
	}
	return list, len(places), nil
}

// secondsPerStep is what a run's steps took, validations included; 0 where none was logged.
func secondsPerStep(dir string) float64 {
	run, err := rundir.Read(dir)
	if err != nil {
		return 0
	}
	o := run.Outcome()
	if o.Steps == 0 {
		return 0
	}
	return o.Total / float64(o.Steps)
}
