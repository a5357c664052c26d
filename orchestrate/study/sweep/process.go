package sweep

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gyre/internal/atomicfile"
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

// process runs gyre train on a run until it ends, and returns its exit code. When ctx ends, the run finishes its step
// and saves; where it had not begun yet, that is an error.
func (x *execution) process(ctx context.Context, r *Run, place slot) (code int, err error) {
	log, err := r.openLog()
	if err != nil {
		return 0, err
	}
	defer log.Close()
	args := append([]string{"train", x.study.BasePath()}, r.Overrides...)
	args = append(args, "--resume")
	if r.Target > 0 {
		args = append(args, fmt.Sprintf("--until=%d", r.Target))
	}
	environment := append(os.Environ(), fmt.Sprintf("GYRE_THREADS=%d", place.threads))
	if n := len(place.devices); n > 0 {
		onDevice := func(word string) bool { return strings.HasPrefix(word, "model.device=") }
		if !slices.ContainsFunc(r.Overrides, onDevice) {
			args = append(args, "model.device=cuda")
		}
		environment = append(environment, "CUDA_VISIBLE_DEVICES="+strings.Join(place.devices, ","))
		if n > 1 {
			args = append(args, "--ranks", fmt.Sprint(n))
		}
	}
	return child.Run(ctx, log, environment, x.options.Command, args...)
}

// openLog opens the file that a run's words are added to.
func (r *Run) openLog() (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(r.Log), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(r.Log, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
}

// awaitOrphan waits for a run's process that a killed study left behind.
func (x *execution) awaitOrphan(ctx context.Context, r *Run) {
	for said := false; atomicfile.Exists(r.Dir) && ctx.Err() == nil; said = true {
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
