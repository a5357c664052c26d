package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// part is what a process does of a run.
type part func(ctx context.Context, world *ranks.World, console *metrics.Console) error

// overRanks runs a command's work in this process, or starts and watches the processes that do. What a launcher
// (torchrun, mpirun, srun, Kubernetes) has started finds its run by itself. resume is the flag that continues a run,
// "" where there is nothing to continue.
func overRanks(c *cli.Context, cfg *config.Config, resume string, work part) error {
	place, many, err := ranks.Recognise()
	if err != nil {
		return Usagef("%w", err)
	}
	n := c.Int("ranks")
	switch {
	case c.Int("restarts") > 0 && n < 2:
		return Usagef("--restarts needs --ranks 2 or more: it is the launcher that restarts")
	case n > 1 && many && place.Launcher != "gyre":
		return Usagef("--ranks %d, but this process is %v already: leave --ranks out", n, place)
	}
	size := max(n, place.Size, 1)
	trainers := size
	if c.Command.Name == "train" && size > 1 {
		trainers -= cfg.FSDP.Samplers
	}
	if trainers < 1 {
		return Usagef("fsdp.samplers = %d of %d ranks: one at least has to train; take --ranks %d, or lower it",
			cfg.FSDP.Samplers, size, cfg.FSDP.Samplers+1)
	}
	if err := checkSize(cfg, trainers); err != nil {
		return err
	}
	hash, err := configHash(c, cfg)
	if err != nil {
		return err
	}
	if gpus := torch.CUDAInfo(); size > 1 && strings.HasPrefix(cfg.Model.Device, "cuda") &&
		strings.HasPrefix(gpus, "none: ") {
		return Usagef("%d ranks with model.device = %q, but GPUs of this machine: %s", size, cfg.Model.Device, gpus)
	}
	if n <= 1 && !many {
		return work(c.Context, ranks.Alone(), metrics.NewConsole(c.App.ErrWriter))
	}
	if many {
		return join(c, cfg, place, hash, resume != "", work)
	}
	threads, _ := strconv.Atoi(os.Getenv("GYRE_THREADS"))
	ended := ranks.Launch{
		Ranks: n, Restarts: c.Int("restarts"), Args: os.Args[1:], Resume: resume, Threads: threads,
		Stdout: c.App.Writer, Stderr: c.App.ErrWriter,
	}.Run(c.Context)
	if e, ok := errors.AsType[*ranks.Ended](ended); ok && resume != "" && e.Code <= 128 &&
		e.Code != exitcode.StoppedEarly {
		return errors.Join(ended, rundir.Died(runFolder(cfg), e.Error()))
	}
	return ended
}

func runFolder(cfg *config.Config) string { return filepath.Join(cfg.Run.Output, cfg.Run.Name) }

// join does this process's part of a run of many. recorded says that there is a run directory, in which the end of a
// run stands.
func join(c *cli.Context, cfg *config.Config, place ranks.Place, hash string, recorded bool, work part) error {
	sameBuild, err := build()
	if err != nil {
		return err
	}
	if threads := place.Threads(); threads > 0 && os.Getenv("GYRE_THREADS") == "" && cfg.Run.Threads == 0 {
		if err := torch.SetThreads(threads); err != nil {
			return err
		}
	}
	backend := "gloo"
	if strings.HasPrefix(cfg.Model.Device, "cuda") {
		backend = "nccl"
		if visible := os.Getenv("CUDA_VISIBLE_DEVICES"); cfg.Model.Device == "cuda" &&
			(visible == "" || strings.Contains(visible, ",")) {
			cfg.Model.Device = fmt.Sprintf("cuda:%d", place.LocalRank)
		}
	}
	console := metrics.NewConsole(io.Discard)
	if place.Rank == 0 {
		console = metrics.NewConsole(c.App.ErrWriter)
		fmt.Fprintf(console, "gyre: %v\n", place)
	}
	// The end of another rank comes as the end of this context, a signal by itself.
	ctx, world, err := ranks.Join(c.Context, place, ranks.Options{
		Version: sameBuild, Config: hash, Bind: cfg.FSDP.Bind, Folder: cfg.Run.Output, Backend: backend,
		Timeout: time.Duration(cfg.FSDP.Timeout * float64(time.Second)),
		Failed: func(f *ranks.Failure) {
			if recorded {
				if err := rundir.Died(runFolder(cfg), f.Error()); err != nil {
					warn(c, err.Error())
				}
			}
		},
	})
	if err != nil {
		return err
	}
	err = work(ctx, world, console)
	code := exitCode(err)
	if cause := interrupt.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err, code = cause, exitCode(cause)
	}
	return world.Conclude(err, code, code == exitcode.StoppedEarly || code > 128)
}

// checkSize reports what does not go with the number of ranks. One process samples alone.
func checkSize(cfg *config.Config, size int) error {
	f, together := cfg.FSDP, cfg.Engine.TensorParallel
	switch {
	case f.Replicas > 1 && size%f.Replicas != 0:
		return Usagef("fsdp.replicas = %d, but %d ranks cannot be divided into so many equal sets", f.Replicas, size)
	case f.Deterministic && f.Lanes%size != 0:
		return Usagef("fsdp.lanes = %d for %d ranks: expected a multiple; set fsdp.lanes=%d, for every number of "+
			"ranks whose bits are to agree", f.Lanes, size, 4*size)
	case size > 1 && together > 1 && size%together != 0:
		return Usagef("engine.tensor_parallel = %d, but %d ranks cannot be divided into sets of so many: take %d "+
			"ranks, or set engine.tensor_parallel to a divisor of %d", together, size,
			(size+together-1)/together*together, size)
	}
	return nil
}

var ownLibrary = regexp.MustCompile(`/.*libgyre\..*`)

// build is equal where the same program runs: what a version says of itself does not tell builds of a changed tree
// apart. It is a hash of the program and of its library, as far as the system names them.
func build() (string, error) {
	if err := torch.Load(); err != nil {
		return "", err
	}
	mapped, _ := os.ReadFile("/proc/self/maps")
	files := slices.Compact(slices.Sorted(slices.Values(ownLibrary.FindAllString(string(mapped), -1))))
	sum := xxhash.New() // fast: every rank reads the whole program at its start
	for _, path := range append(files, "/proc/self/exe") {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) { // no such system, or replaced since
			continue
		}
		if err == nil {
			_, err = io.Copy(sum, file)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return "", fmt.Errorf("which build this is: %w", err)
		}
	}
	return fmt.Sprintf("%s, build %x", version(), sum.Sum(nil)), nil
}

// configHash is equal on ranks that do the same.
func configHash(c *cli.Context, cfg *config.Config) (string, error) {
	resolved, err := config.Resolved(cfg)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n", c.Command.Name, resolved)
	for _, flag := range c.Command.Flags {
		if name := flag.Names()[0]; !slices.Contains([]string{"resume", "ranks", "restarts"}, name) {
			fmt.Fprintf(sum, "%s=%v\n", name, c.Value(name))
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// silentRank reports whether another process says what this one would say about its arguments.
func silentRank() bool {
	place, many, err := ranks.Recognise()
	return err == nil && many && (place.Rank > 0 || place.Launcher == "gyre")
}
