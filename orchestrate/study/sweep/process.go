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
	"slices"
	"strings"
	"syscall"
	"time"

	"gyre/internal/child"
	"gyre/orchestrate/run/rundir"
)

// outcomeOnDisk is how a run ended according to its own run.json; false while it has not.
func outcomeOnDisk(r *Run) (Status, bool) {
	info, err := rundir.ReadInfo(r.Dir)
	if err != nil || info == nil {
		return "", false
	}
	switch {
	case info.Status == "done":
		return Finished, true
	case info.Status == "stopped_early":
		return StoppedEarly, true
	case info.Status == "paused" && r.Target > 0 && info.Step >= r.Target:
		return Paused, true
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
	if r.Target > 0 {
		args = append(args, fmt.Sprintf("--until=%d", r.Target))
	}
	cmd := exec.Command(x.options.Command, args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("GYRE_THREADS=%d", place.threads))
	if len(place.devices) > 0 {
		if !slices.ContainsFunc(r.Overrides,
			func(word string) bool { return strings.HasPrefix(word, "model.device=") }) {
			cmd.Args = append(cmd.Args, "model.device=cuda")
		}
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+strings.Join(place.devices, ","))
		if n := len(place.devices); n > 1 {
			cmd.Args = append(cmd.Args, "--ranks", fmt.Sprint(n))
		}
	}
	fmt.Fprintf(log, "$ %s\n", strings.Join(cmd.Args, " "))
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, child.Attributes()
	runtime.LockOSThread() // see child.Attributes
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
		message = strings.Join(lastLines(r.Log, 1), "")
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

// lastLines are the last lines of a run's log that say something, at most so many.
func lastLines(path string, most int) (lines []string) {
	log, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil
	}
	reader := bufio.NewScanner(io.NewSectionReader(log, max(0, info.Size()-1<<14), 1<<14))
	for reader.Scan() {
		// the command, which process wrote
		if line := strings.TrimSpace(reader.Text()); line != "" && !strings.HasPrefix(line, "$ ") {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-most):]
}
