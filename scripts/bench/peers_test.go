package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

// startScript starts the peers' worker.py with a stand-in for the module that knows transformers.
func startScript(t *testing.T, module string) (*worker.Process, error) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(scripts)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "transformers_worker.py"), []byte(module), 0o644); err != nil {
		t.Fatal(err)
	}
	return worker.Start(context.Background(), "transformers", exec.Command(python,
		filepath.Join(folder, "worker.py"), "transformers", "--model", "m", "--threads", "1"))
}

// Whatever a library prints, the protocol goes through; a task that fails leaves the worker ready for the next.
func TestPeerWorker(t *testing.T) {
	p, err := startScript(t, `
import os

class Worker:
    def __init__(self, options, channel):
        print("loading", options.model)
        os.system("echo from a child")
        self.versions, self.notes = {"stand-in": "1.0"}, ["a note"]

    def generate(self, task):
        print("sampling")
        return {"seconds": 0.5, "tokens": len(task["prompts"]) * task["copies"] * task["new"]}

    def update(self, task):
        raise ValueError("no gradients here")
`)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Hello.Program != "transformers" || p.Hello.Versions["stand-in"] != "1.0" || len(p.Hello.Notes) != 1 {
		t.Errorf("hello is %+v", p.Hello)
	}
	for range 2 {
		task := work.Task{Case: work.Case{Op: work.OpGenerate, Copies: 3, New: 4}, Prompts: [][]int32{{1}, {2}}}
		f, err := p.Run(context.Background(), task, time.Minute)
		if err != nil || f.Tokens != 24 || f.Seconds != 0.5 || f.PeakBytes <= 0 {
			t.Errorf("figures are %+v (%v)", f, err)
		}
		for op, want := range map[string]string{work.OpUpdate: "ValueError: no gradients here",
			work.OpGRPO: "AttributeError"} {
			task := work.Task{Case: work.Case{Op: op}}
			if _, err := p.Run(context.Background(), task, time.Minute); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s gives %v, expected %q", op, err, want)
			}
		}
	}
}

func TestPeerWorkerWithoutItsLibrary(t *testing.T) {
	for module, want := range map[string]string{
		"import a_library_that_is_not_there": "ModuleNotFoundError",
		"raise OSError('libomp.so')":         "it does not start: OSError: libomp.so",
	} {
		if _, err := startScript(t, module); !errors.Is(err, worker.ErrUnavailable) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, expected it to be unavailable: %q", module, err, want)
		}
	}
}

// A peer's Python is that of the peers' folder, else python3.
func TestPythonIsFoundInOrder(t *testing.T) {
	dir := t.TempDir()
	make := func(path string) string {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	installed, plain := make("peers/vllm/bin/python"), make("bin/python3")
	t.Setenv("PATH", filepath.Dir(plain))
	for peers, want := range map[string]string{filepath.Join(dir, "peers"): installed, filepath.Join(dir, "none"): plain,
		"": plain} {
		if got, err := (&options{peersDir: peers}).python("vllm"); err != nil || got != want {
			t.Errorf("%q: found %q (%v), want %q", peers, got, err, want)
		}
	}
	t.Setenv("PATH", dir)
	if _, err := (&options{}).python("vllm"); !errors.Is(err, worker.ErrUnavailable) {
		t.Errorf("without any Python: %v", err)
	}
}
