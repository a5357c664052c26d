// Package gyre is the benchmark's worker for Gyre itself: the tasks of package work through the same packages that the
// gyre command uses. Generation and rollouts go through the sampling engine, log-probs and updates through the model's
// own calls, and a GRPO step through the trainer, with prompts from a file.
package gyre

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"gyre/orchestrate/model/checkpoint"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// OpProbe measures the machine instead of doing a task.
const OpProbe = "probe"

// server holds what tasks need; each part is made by the first task that needs it.
type server struct {
	dir     string
	on      torch.Placement
	threads int
	log     io.Writer
	model   *torch.Model
	sampler *sampler
	learner *learner
	half    float64 // the rate of products in bf16 over that in f32, once it is known
}

// Serve answers tasks from in on out until in ends. log takes what is not part of the protocol.
func Serve(dir string, on torch.Placement, threads int, in io.Reader, out, log io.Writer) error {
	if err := torch.SetThreads(threads); err != nil {
		return err
	}
	s := &server{dir: dir, on: on, threads: threads, log: log}
	defer s.close()
	answer := json.NewEncoder(out)
	hello := worker.Hello{Program: "gyre", Versions: map[string]string{"libgyre": torch.BuildInfo()}}
	if err := answer.Encode(worker.Line{Hello: &hello}); err != nil {
		return err
	}
	lines := bufio.NewReader(in)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var task work.Task
		if err := json.Unmarshal(text, &task); err != nil {
			return fmt.Errorf("reading a task: %w", err)
		}
		var line worker.Line
		if figures, err := s.do(task); err != nil {
			line.Error = err.Error()
		} else {
			figures.Tokens, figures.PeakBytes = task.Tokens(), torch.PeakRSS()
			line.Figures = &figures
		}
		if err := answer.Encode(line); err != nil {
			return err
		}
	}
}

func (s *server) do(t work.Task) (worker.Figures, error) {
	if t.Op == OpProbe {
		return s.probe()
	}
	if t.Op == work.OpGRPO { // the trainer loads its own model
		return s.step(t)
	}
	if s.model == nil {
		model, err := checkpoint.LoadModel(s.dir, torch.HeadLM, s.on)
		if err != nil {
			return worker.Figures{}, err
		}
		s.model = model
	}
	switch t.Op {
	case work.OpGreedy:
		return s.greedy(t)
	case work.OpGenerate:
		return s.generate(t)
	case work.OpRollout:
		return s.rollout(t)
	}
	if s.sampler != nil { // as the trainer does before an update
		if err := s.sampler.engine.Sleep(); err != nil {
			return worker.Figures{}, err
		}
	}
	switch t.Op {
	case work.OpLogprobs:
		return s.logprobs(t)
	case work.OpUpdate:
		return s.update(t)
	case work.OpAnalysis:
		return s.analysis(t)
	}
	return worker.Figures{}, fmt.Errorf("unknown operation %q", t.Op)
}

// probe measures the machine. How much faster products are in bf16 is found out once.
func (s *server) probe() (worker.Figures, error) {
	if s.half == 0 {
		sets, err := torch.InstructionSets()
		if err != nil {
			return worker.Figures{}, err
		}
		for _, set := range sets {
			if set.InUse {
				s.half = set.BFloat16 / set.Float32
			}
		}
	}
	bandwidth, flops, err := torch.Measure()
	return worker.Figures{Bandwidth: bandwidth, FLOPS: flops, FLOPS16: s.half * flops}, err
}

func (s *server) close() {
	s.learner.close()
	s.sampler.close()
	if s.model != nil {
		s.model.Close()
	}
}
