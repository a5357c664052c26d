// Package gyre is the benchmark's worker for Gyre itself: the tasks of package work through the same packages that the
// gyre command uses. Generation and rollouts go through the sampling engine, log-probs and updates through the model's
// own calls, a GRPO step through the trainer, with prompts from a file, and training over ranks through the gyre
// command.
package gyre

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"gyre/orchestrate/model/checkpoint"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// Options say what a worker holds and how it computes.
type Options struct {
	Model     string // directory
	On        torch.Placement
	Threads   int    // of this process, or of each of its ranks
	Ranks     int    // processes of a training
	Server    string // program whose server is measured
	Staleness int    // of a training whose environments wait
	// Speculate bounds the tokens that are tried for a sequence and pass; 0 = none.
	Speculate int
}

// server holds what tasks need; each part is made by the first task that needs it.
type server struct {
	Options
	log  io.Writer
	url  string  // of the HTTP server
	stop func()  // ends it
	half float64 // the rate of products in bf16 over that in f32, once it is known

	held      []io.Closer // what follows, in the order in which it was made
	loaded    *torch.Model
	adapters  []*torch.Model // of tasks with adapters: loaded is the first of them
	sampler   *sampler
	optimizer *torch.Optimizer
	gradients *torch.Gradients
}

func (s *server) holds(c io.Closer) { s.held = append(s.held, c) }

func (s *server) close() {
	for _, c := range slices.Backward(s.held) {
		c.Close()
	}
	s.held, s.loaded, s.adapters, s.sampler, s.optimizer, s.gradients = nil, nil, nil, nil, nil, nil
}

// Serve answers tasks from in on out until in ends. The options are JSON; log takes what is not part of the protocol.
func Serve(options string, in io.Reader, out, log io.Writer) error {
	s := &server{log: log, stop: func() {}}
	defer func() { s.stop(); s.close() }()
	if err := json.Unmarshal([]byte(options), &s.Options); err != nil {
		return fmt.Errorf("the worker's options: %w", err)
	}
	if err := torch.SetThreads(s.Threads); err != nil {
		return err
	}
	answer := json.NewEncoder(out)
	hello := worker.Hello{Program: "gyre", Versions: map[string]string{"libgyre": torch.BuildInfo()}}
	if s.Server != "" {
		hello.Versions, hello.Notes = nil, []string{"the server's clients are Go's"}
	}
	if err := answer.Encode(worker.Line{Hello: &hello}); err != nil {
		return err
	}
	tasks := json.NewDecoder(bufio.NewReader(in))
	for {
		var task work.Task
		if err := tasks.Decode(&task); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a task: %w", err)
		}
		var line worker.Line
		if figures, err := s.do(task); err != nil {
			line.Error = err.Error()
		} else {
			figures.Tokens, figures.PeakBytes = max(figures.Tokens, task.Tokens()), torch.PeakRSS()
			line.Figures = &figures
		}
		if err := answer.Encode(line); err != nil {
			return err
		}
	}
}

func (s *server) do(t work.Task) (worker.Figures, error) {
	trains := map[string]func(t work.Task, folder string) (worker.Figures, error){work.OpGRPO: s.grpo,
		work.OpTrain: s.train, work.OpPass: s.train, work.OpWaiting: s.waiting}
	switch t.Op { // without a model, or with the trainer's own
	case work.OpProbe:
		return s.probe()
	case work.OpGRPO, work.OpTrain, work.OpPass, work.OpWaiting:
		folder, err := os.MkdirTemp("", "gyre-bench-")
		if err != nil {
			return worker.Figures{}, err
		}
		defer os.RemoveAll(folder)
		return trains[t.Op](t, folder)
	case work.OpServe:
		return s.serve(t)
	case work.OpEnvironment:
		return s.environment(t)
	}
	if t.Adapters > 0 {
		if err := s.openAdapters(t); err != nil {
			return worker.Figures{}, err
		}
	}
	if s.loaded == nil {
		model, err := checkpoint.LoadModel(s.Model, torch.HeadLM, s.On)
		if err != nil {
			return worker.Figures{}, err
		}
		s.holds(model)
		s.loaded = model
	}
	switch t.Op {
	case work.OpGreedy, work.OpGenerate, work.OpRewrite:
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
	bandwidth, flops, err := torch.Measure(torch.ComputeF32)
	if err != nil {
		return worker.Figures{}, err
	}
	numbers, err := torch.MeasureRows()
	return worker.Figures{Machine: work.Machine{Bandwidth: bandwidth, FLOPS: flops, FLOPS16: s.half * flops,
		Rows: numbers}}, err
}

// openAdapters makes what a task needs of adapters of one rank beside a frozen model, as runs with [lora] hold them.
// What other tasks needed is closed, the whole model that continued the fixed prompt too.
func (s *server) openAdapters(t work.Task) error {
	if len(s.adapters) == t.Adapters && s.adapters[0].Config.LoRA.Rank == int32(t.Rank) {
		return nil
	}
	s.close()
	on := s.On
	on.Frozen = true
	base, err := checkpoint.LoadModel(s.Model, torch.HeadLM, on)
	if err != nil {
		return err
	}
	s.holds(base)
	targets := []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	if base.Config.Shape.Experts > 0 {
		targets = append(targets[:4], "experts.gate_up_proj", "experts.down_proj")
	}
	lora := torch.LoRA{Rank: int32(t.Rank), Scale: 1, Targets: torch.TargetsOf(targets)}
	for i := range t.Adapters {
		m, err := checkpoint.Adapter{LoRA: lora, Seed: uint64(i)}.Attach(base, torch.HeadLM, checkpoint.Ranks{})
		if err != nil {
			return err
		}
		s.holds(m)
		s.adapters = append(s.adapters, m)
	}
	s.loaded = s.adapters[0]
	return nil
}

// policy is what continues prompt n; nil: the model that the engine was made for.
func (s *server) policy(t work.Task, n int) *torch.Model {
	if t.Adapters == 0 {
		return nil
	}
	return s.adapters[n%t.Adapters]
}
