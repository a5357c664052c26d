package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// own are the programs that are Gyre itself: as measured, and in the settings that it is compared with.
var own = []string{report.Subject, work.OneProcess, work.Plain, work.Synchronous}

// workerVerb makes this program Gyre's own worker.
const workerVerb = "worker"

//go:embed peers/*.py
var scripts embed.FS

// unpackScripts writes the peers' workers to a new folder.
func unpackScripts() (string, error) {
	folder, err := os.MkdirTemp("", "gyre-bench-peers-")
	if err != nil {
		return "", err
	}
	return folder, os.CopyFS(folder, scripts)
}

// command is how a program's worker is started for a session; all get the same number of threads. An error that
// matches worker.ErrUnavailable says what is missing.
func (b *bench) command(entry string, s work.Session) (*exec.Cmd, error) {
	program, dtype := report.Split(entry)
	var c *exec.Cmd
	var err error
	if slices.Contains(own, program) {
		c = exec.Command(os.Args[0], b.gyre(program, dtype, s)...)
	} else if s == work.Serving { // the clients are Gyre's
		var python string
		if python, err = b.options.python(program); err == nil {
			c = exec.Command(os.Args[0], append(b.gyre(program, dtype, s), "-server", filepath.Join(filepath.Dir(python),
				program))...)
		}
	} else {
		c, err = b.peer(program, dtype, s)
	}
	if err != nil {
		return nil, err
	}
	c.Env = append(os.Environ(), "OMP_NUM_THREADS="+strconv.Itoa(b.options.Threads))
	if program == "vllm" {
		// vLLM's guide for CPUs asks to load Intel's OpenMP first.
		library := filepath.Join(filepath.Dir(filepath.Dir(c.Path)), "lib", "libiomp5.so")
		if _, err := os.Stat(library); err == nil && !b.onGPU() {
			c.Env = append(c.Env, "LD_PRELOAD="+library)
		}
	}
	return c, nil
}

func (b *bench) onGPU() bool { return strings.HasPrefix(b.options.On.Device, "cuda") }

// gyre are the arguments of Gyre's own worker, which is this program. Where nothing trains the model is held for
// sampling alone, as by gyre generate. Ranks share the threads.
func (b *bench) gyre(program, dtype string, s work.Session) []string {
	threads, args := b.options.Threads, []string{workerVerb, "-model", b.options.Model, "-device", b.options.On.Device}
	if dtype != report.Float32 {
		args = append(args, "-dtype", string(torch.ComputeBF16))
	}
	if s == work.Distinct {
		args = append(args, "-frozen")
	}
	if s == work.Serving && program == report.Subject {
		args = append(args, "-server", "./gyre")
	}
	if program == work.Plain {
		args = append(args, "-speculate", "0")
	}
	if s == work.Waiting && program == report.Subject {
		args = append(args, "-staleness", "2")
	}
	if s == work.Ranks && program == report.Subject {
		args = append(args, "-ranks", strconv.Itoa(threads))
	}
	return append(args, "-threads", strconv.Itoa(threads))
}

// peer is the command of another program's worker.
func (b *bench) peer(program, dtype string, s work.Session) (*exec.Cmd, error) {
	o := &b.options
	python, err := o.python(program)
	if err != nil {
		return nil, err
	}
	model, err := filepath.Abs(o.Model)
	if err != nil {
		return nil, err
	}
	c := exec.Command(python, filepath.Join(b.scripts, "peers", "worker.py"), program, "--dtype", dtype, "--model",
		model, "--threads", strconv.Itoa(o.Threads))
	if b.onGPU() {
		c.Args = append(c.Args, "--device", o.On.Device)
	}
	switch {
	case program == "llama" && b.onGPU():
		return nil, fmt.Errorf("%w: it is compared on CPUs only", worker.ErrUnavailable)
	case program == "llama":
		gguf := filepath.Join(o.peersDir, filepath.Base(o.Model)+"-"+dtype+".gguf")
		if _, err := os.Stat(gguf); err != nil {
			return nil, fmt.Errorf("%w: the GGUF file of the model: %w", worker.ErrUnavailable, err)
		}
		c.Args = append(c.Args, "--gguf", gguf)
	case program == "vllm" && s == work.Shared:
		c.Args = append(c.Args, "--prefix-cache")
	case program == "ragen":
		source := os.Getenv("GYRE_BENCH_RAGEN_SOURCE")
		if source == "" {
			source = filepath.Join(o.peersDir, "ragen-source")
		}
		if _, err := os.Stat(filepath.Join(source, "ragen", "env")); err != nil {
			return nil, fmt.Errorf("%w: no checkout of RAGEN (GYRE_BENCH_RAGEN_SOURCE)", worker.ErrUnavailable)
		}
		c.Args = append(c.Args, "--source", source)
	}
	return c, nil
}

// python finds the interpreter that a peer runs in: named by -python, else a virtual environment under the peers'
// folder (DIR/vllm, made by setup-peers.sh), else python3. Its path stays as it is: a virtual environment's python is
// a link that must not be followed.
func (o *options) python(program string) (string, error) {
	choice, source := o.pythons[program], "-python"
	if choice == "" && o.peersDir != "" {
		choice, source = filepath.Join(o.peersDir, program, "bin", "python"), "-peers-dir"
		if _, err := os.Stat(choice); err != nil {
			choice = ""
		}
	}
	if choice == "" {
		choice, source = "python3", "PATH"
	}
	found, err := exec.LookPath(choice)
	if err != nil {
		return "", fmt.Errorf("%w: the Python named by %s: %w", worker.ErrUnavailable, source, err)
	}
	return filepath.Abs(found)
}
