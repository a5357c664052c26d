package main

import (
	"context"
	"embed"
	"fmt"
	"os"
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

// gyre is the command of Gyre's own worker: this program. Where nothing trains the model is held for sampling alone, as by gyre generate.
func (b *bench) gyre(name string, s work.Session) worker.Command {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	args := []string{self, workerVerb, "-model", b.options.model, "-threads", strconv.Itoa(b.options.threads), "-device", b.options.device}
	if report.Type(name) != report.Float32 {
		args = append(args, "-dtype", string(torch.ComputeBF16))
	}
	if s == work.Distinct {
		args = append(args, "-frozen")
	}
	return worker.Command{Program: name, Env: b.environment(), Args: args}
}

// startProgram starts a program's worker for a session.
func (b *bench) startProgram(ctx context.Context, name string, s work.Session) (*worker.Process, error) {
	base, dtype := report.Base(name), report.Type(name)
	if base == report.Subject {
		return worker.Start(ctx, b.gyre(name, s))
	}
	python, source, err := worker.Python(base, b.options.pythons[base], b.options.peersDir)
	if err != nil {
		return nil, err
	}
	model, err := filepath.Abs(b.options.model)
	if err != nil {
		return nil, err
	}
	c := worker.Command{Program: name, Args: []string{python, filepath.Join(b.scripts, "peers", "worker.py"), base,
		"--dtype", dtype, "--model", model, "--threads", strconv.Itoa(b.options.threads)}}
	onGPU := strings.HasPrefix(b.options.device, "cuda")
	if onGPU {
		c.Args = append(c.Args, "--device", b.options.device)
	}
	var more []string
	switch base {
	case "llama":
		if onGPU {
			return nil, fmt.Errorf("%w: it is compared on CPUs only", worker.ErrUnavailable)
		}
		gguf := strings.ReplaceAll(b.options.gguf, "f32", dtype)
		if gguf == "" && b.options.peersDir != "" {
			gguf = filepath.Join(b.options.peersDir, filepath.Base(b.options.model)+"-"+dtype+".gguf")
		}
		if gguf == "" {
			return nil, fmt.Errorf("%w: no GGUF file of the model in %s is named (-gguf)", worker.ErrUnavailable, dtype)
		}
		if _, err := os.Stat(gguf); err != nil {
			return nil, fmt.Errorf("%w: the GGUF file: %w", worker.ErrUnavailable, err)
		}
		c.Args = append(c.Args, "--gguf", gguf)
	case "vllm":
		if s == work.Shared {
			c.Args = append(c.Args, "--prefix-cache")
		}
		if library := worker.Preload(python); library != "" && !onGPU {
			more = append(more, "LD_PRELOAD="+library)
		}
	}
	c.Env = b.environment(more...)
	process, err := worker.Start(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("%w (the Python of %s: %s)", err, source, python)
	}
	return process, nil
}
