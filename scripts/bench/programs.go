package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// own are the programs that are Gyre itself: as measured, and in the settings that it is compared with.
var own = []string{report.Subject, work.OneProcess, work.Plain, work.Synchronous}

// workerVerb makes this program Gyre's own worker.
const workerVerb = "worker"

// scripts is the folder of the peers' workers, which like ./gyre is found from the repository's root.
const scripts = "scripts/bench/peers"

// command is how a program's worker is started for a session; all get the same number of threads. An error that
// matches worker.ErrUnavailable says what is missing.
func (b *bench) command(entry string, s work.Session) (*exec.Cmd, error) {
	program, dtype := report.Split(entry)
	isOwn := slices.Contains(own, program)
	var c *exec.Cmd
	var err error
	if isOwn || s == work.Serving { // whose clients are Gyre's
		o := b.own(program, dtype, s)
		if !isOwn {
			var python string
			python, err = b.options.python(program)
			o.Server = filepath.Join(filepath.Dir(python), program)
		}
		settings, _ := json.Marshal(o) // numbers and texts
		c = exec.Command(os.Args[0], workerVerb, string(settings))
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

// own are the options of Gyre's own worker, which is this program. Where nothing trains the model is held for sampling
// alone, as by gyre generate. Ranks share the threads.
func (b *bench) own(program, dtype string, s work.Session) gyre.Options {
	o := b.options.Options
	o.On.Compute, o.On.Frozen = torch.ComputeF32, s == work.Distinct
	if dtype != report.Float32 {
		o.On.Compute = torch.ComputeBF16
	}
	if program != work.Plain {
		o.Speculate = torch.SpeculativeTokens
	}
	if program == report.Subject {
		switch s {
		case work.Serving:
			o.Server = "./gyre"
		case work.Waiting:
			o.Staleness = 2
		case work.Ranks:
			o.Ranks = o.Threads
		}
	}
	return o
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
	c := exec.Command(python, filepath.Join(scripts, "worker.py"), program, "--dtype", dtype, "--model",
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
		source := filepath.Join(o.peersDir, "ragen-source")
		if _, err := os.Stat(filepath.Join(source, "ragen", "env")); err != nil {
			return nil, fmt.Errorf("%w: no checkout of RAGEN in %s", worker.ErrUnavailable, source)
		}
		c.Args = append(c.Args, "--source", source)
	}
	return c, nil
}

// python finds the interpreter that a peer runs in: that of the virtual environment in the peers' folder (DIR/vllm,
// made by setup-peers.sh), else python3. Its path stays as it is: a virtual environment's python is a link that must
// not be followed.
func (o *options) python(program string) (string, error) {
	if installed := filepath.Join(o.peersDir, program, "bin", "python"); o.peersDir != "" {
		if found, err := exec.LookPath(installed); err == nil {
			return filepath.Abs(found)
		}
	}
	found, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("%w: %w", worker.ErrUnavailable, err)
	}
	return filepath.Abs(found)
}
