package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
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

// gyre is the command of Gyre's own worker: this program.
func (b *bench) gyre() worker.Command {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return worker.Command{Program: report.Subject, Env: b.environment(),
		Args: []string{self, workerVerb, "-model", b.options.model, "-threads", strconv.Itoa(b.options.threads)}}
}

// startProgram starts a program's worker for a session.
func (b *bench) startProgram(ctx context.Context, name string, s work.Session) (*worker.Process, error) {
	if name == report.Subject {
		return worker.Start(ctx, b.gyre())
	}
	python, source, err := worker.Python(name, b.options.pythons[name], b.options.peersDir)
	if err != nil {
		return nil, err
	}
	model, err := filepath.Abs(b.options.model)
	if err != nil {
		return nil, err
	}
	c := worker.Command{Program: name, Args: []string{python, filepath.Join(b.scripts, "peers", "worker.py"), name,
		"--model", model, "--threads", strconv.Itoa(b.options.threads)}}
	var more []string
	switch name {
	case "llama":
		gguf := b.options.gguf
		if gguf == "" && b.options.peersDir != "" {
			gguf = filepath.Join(b.options.peersDir, filepath.Base(b.options.model)+"-f32.gguf")
		}
		if gguf == "" {
			return nil, fmt.Errorf("%w: no GGUF file of the model in f32 is named (-gguf)", worker.ErrUnavailable)
		}
		if _, err := os.Stat(gguf); err != nil {
			return nil, fmt.Errorf("%w: the GGUF file: %w", worker.ErrUnavailable, err)
		}
		c.Args = append(c.Args, "--gguf", gguf)
	case "vllm":
		if s == work.Shared {
			c.Args = append(c.Args, "--prefix-cache")
		}
		if library := worker.Preload(python); library != "" {
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
