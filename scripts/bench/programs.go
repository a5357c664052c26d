package main

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

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

// environment gives every program the same number of threads.
func (b *bench) environment(more ...string) []string {
	return append(append(os.Environ(), "OMP_NUM_THREADS="+strconv.Itoa(b.options.threads)), more...)
}

// gyre is the command of Gyre's own worker: this program. Where nothing trains the model is held for sampling alone,
// as by gyre generate.
func (b *bench) gyre(name string, s work.Session) worker.Command {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	args := []string{self, workerVerb, "-model", b.options.model, "-threads", strconv.Itoa(b.options.threads),
		"-device", b.options.device}
	if _, dtype := report.Split(name); dtype != report.Float32 {
		args = append(args, "-dtype", string(torch.ComputeBF16))
	}
	if s == work.Distinct {
		args = append(args, "-frozen")
	}
	return worker.Command{Program: name, Env: b.environment(), Args: args}
}

// command is how a program's worker is started for a session. An error that matches worker.ErrUnavailable says what is
// missing.
func (b *bench) command(name string, s work.Session) (worker.Command, error) {
	base, dtype := report.Split(name)
	if base == report.Subject {
		return b.gyre(name, s), nil
	}
	python, err := b.options.python(base)
	if err != nil {
		return worker.Command{}, err
	}
	model, err := filepath.Abs(b.options.model)
	if err != nil {
		return worker.Command{}, err
	}
	c := worker.Command{Program: name, Env: b.environment(),
		Args: []string{python, filepath.Join(b.scripts, "peers", "worker.py"), base,
			"--dtype", dtype, "--model", model, "--threads", strconv.Itoa(b.options.threads)}}
	onGPU := strings.HasPrefix(b.options.device, "cuda")
	if onGPU {
		c.Args = append(c.Args, "--device", b.options.device)
	}
	switch base {
	case "llama":
		if onGPU {
			return c, fmt.Errorf("%w: it is compared on CPUs only", worker.ErrUnavailable)
		}
		gguf := filepath.Join(b.options.peersDir, filepath.Base(b.options.model)+"-"+dtype+".gguf")
		if _, err := os.Stat(gguf); err != nil {
			return c, fmt.Errorf("%w: the GGUF file of the model: %w", worker.ErrUnavailable, err)
		}
		c.Args = append(c.Args, "--gguf", gguf)
	case "vllm":
		if s == work.Shared {
			c.Args = append(c.Args, "--prefix-cache")
		}
		// vLLM's guide for CPUs asks to load Intel's OpenMP first.
		library := filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "libiomp5.so")
		if _, err := os.Stat(library); err == nil && !onGPU {
			c.Env = append(c.Env, "LD_PRELOAD="+library)
		}
	}
	return c, nil
}

// python finds the interpreter that a peer runs in: named by -python, else a virtual environment under the peers'
// folder (DIR/vllm, made by setup-peers.sh), else python3. Its path stays as it is: a virtual environment's python is
// a link that must not be followed.
func (o options) python(program string) (string, error) {
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
