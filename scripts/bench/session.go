package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// bench is a run in progress. One goroutine uses it.
type bench struct {
	options  options
	console  *metrics.Console
	material *work.Material
	model    torch.ModelConfig
	report   *report.Report
	scripts  string // folder of the peers' workers
	probe    *worker.Process
	greedy   map[string][]int32 // the continuation that each program gave
	bar      *metrics.Bar

	done, total float64 // by weight
}

func newBench(o options, console *metrics.Console) (*bench, error) {
	config, err := checkpoint.ReadConfig(o.model)
	if err != nil {
		return nil, fmt.Errorf("%w (scripts/get-smollm2.sh makes the model)", err)
	}
	material, err := work.NewMaterial(o.model, o.repeats)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, console: console, material: material, model: config.ModelConfig,
		greedy: map[string][]int32{}}
	b.report = &report.Report{Date: time.Now().Format(time.DateOnly), CPU: worker.Processor(), BF16: worker.HasBF16(),
		Threads: o.threads,
		Model:   filepath.Base(o.model), Device: o.device}
	b.scripts, err = unpackScripts()
	return b, err
}

func (b *bench) close() {
	if b.probe != nil {
		b.probe.Close()
	}
	os.RemoveAll(b.scripts)
}

// selected are the cases of this run.
func (b *bench) selected() []work.Case {
	return slices.DeleteFunc(work.Cases(), func(c work.Case) bool {
		return !b.options.includes(c.Name) || b.options.quick && len(b.options.only) == 0 && !c.InQuick()
	})
}

// able are the programs that know a session's work besides Gyre.
var able = map[work.Session][]string{
	work.Distinct: {"transformers", "vllm", "llama"}, work.Shared: {"transformers", "vllm", "llama"},
	work.Scoring: {"transformers"}, work.Update: {"transformers"}, work.Group: {"transformers"},
	work.Analysis: {"transformers"},
	work.GRPO:     {"trl"},
}

// entries are the programs of a session in their types, Gyre first.
func (b *bench) entries(s work.Session) []string {
	var out []string
	for _, name := range append([]string{report.Subject}, able[s]...) {
		if name != report.Subject && !slices.Contains(b.options.peers, name) {
			continue
		}
		for _, t := range report.Types(name) {
			if t == report.Float32 || b.options.types != "f32" {
				out = append(out, report.In(name, t))
			}
		}
	}
	return out
}

// plan is a case with its tasks, the warm-up first.
type plan struct {
	work.Case
	tasks []work.Task
}

// run measures cases, session after session.
func (b *bench) run(ctx context.Context, cases []work.Case) error {
	if b.probe == nil {
		var err error
		if b.probe, err = worker.Start(ctx, b.gyre(report.Subject, "")); err != nil {
			return err
		}
	}
	b.done, b.total = 0, 0
	plans := map[work.Session][]plan{}
	for _, c := range cases {
		p := plan{Case: c}
		for repeat := range c.Repeats(b.options.repeats) + 1 {
			task, err := b.material.Task(c, repeat)
			if err != nil {
				return err
			}
			p.tasks = append(p.tasks, task)
			b.total += b.weight(c, task) * float64(len(b.entries(c.Session)))
		}
		plans[c.Session] = append(plans[c.Session], p)
	}
	b.bar = b.console.Bar("bench: percent", 100)
	defer b.bar.Close()
	for _, s := range work.Sessions {
		if len(plans[s]) > 0 {
			if err := b.session(ctx, s, plans[s]); err != nil {
				return err
			}
		}
	}
	b.summarise()
	return nil
}

// weight is how long a task takes, in no unit. The first summand stands for what does not grow with the work.
func (b *bench) weight(c work.Case, t work.Task) float64 {
	return 0.2 + work.Bound(c, t, b.model, work.Machine{Bandwidth: 3e10, FLOPS: 1e11}, false).Total
}

// summarise fills in what the best measurement of the machine decides.
func (b *bench) summarise() {
	others, count := 0.0, 0
	for _, c := range b.report.Cases {
		for name, samples := range c.Samples {
			_, dtype := report.Split(name)
			for i, s := range samples {
				task, err := b.material.Task(c.Case, s.Repeat)
				if err != nil {
					continue // it was made before
				}
				samples[i].Bounds = work.Bound(c.Case, task, b.model, b.report.Machine, dtype != report.Float32)
				others += s.Others
				count++
			}
		}
	}
	b.report.Others = others / float64(max(count, 1))
}

// session starts its programs and measures its cases. A peer that fails is left out from then on; only Gyre's failures
// end the run.
func (b *bench) session(ctx context.Context, s work.Session, plans []plan) error {
	var crew []*worker.Process
	defer func() {
		for _, p := range crew {
			p.Close()
		}
	}()
	for _, name := range b.entries(s) {
		p, err := b.start(ctx, name, s)
		if err != nil {
			return err
		}
		if p != nil {
			crew = append(crew, p)
		}
	}
	if s != work.GRPO {
		if err := b.compareModels(ctx, crew); err != nil {
			return err
		}
	}
	for _, p := range plans {
		for repeat, task := range p.tasks {
			machine, err := b.measure(ctx)
			if err != nil {
				return err
			}
			for _, process := range crew {
				if err := b.sample(ctx, process, p.Case, task, repeat, machine); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sample has a program do a task, and keeps the figures unless the task only warms up.
func (b *bench) sample(ctx context.Context, p *worker.Process, c work.Case, task work.Task, repeat int,
	machine work.Machine) error {
	if p.Gone {
		return nil
	}
	name := p.Hello.Entry
	base, dtype := report.Split(name)
	into := b.report.Case(c)
	// Gyre's threads go to sleep at once
	figures, others, err := p.Measured(ctx, task, b.options.limit, base != report.Subject)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && base == report.Subject:
		return fmt.Errorf("%s: %w", c.Name, err)
	case err != nil:
		into.Failures[name] = err.Error()
		fmt.Fprintf(b.console, "%s: FAILED: %v\n", c.Name, err)
	case repeat > 0:
		s := report.Sample{Repeat: len(into.Samples[name]) + 1, Figures: figures, Machine: machine, Others: others,
			Nearby: work.Bound(c, task, b.model, machine, dtype != report.Float32)}
		into.Samples[name] = append(into.Samples[name], s)
		fmt.Fprintf(b.console, "%s %d/%d: %s: %.1f tokens/s, %.2f s\n", c.Name, repeat, c.Repeats(b.options.repeats),
			name, s.Speed(), s.Seconds)
	}
	b.done += b.weight(c, task)
	b.bar.Set(int(100 * b.done / b.total))
	return nil
}

// start starts a program, or notes why it is skipped and gives nil.
func (b *bench) start(ctx context.Context, name string, s work.Session) (*worker.Process, error) {
	entry := b.report.Program(name)
	if entry.Skipped != "" {
		return nil, nil
	}
	command, err := b.command(name, s)
	var p *worker.Process
	if err == nil {
		p, err = worker.Start(ctx, command)
	}
	base, _ := report.Split(name)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case base == report.Subject:
		return nil, err
	default:
		entry.Skipped = err.Error()
		if errors.Is(err, worker.ErrUnavailable) {
			entry.Skipped += "; scripts/bench/setup-peers.sh DIR installs it, -peers-dir DIR finds it"
		}
		fmt.Fprintf(b.console, "%s: SKIPPED: %s\n", name, entry.Skipped)
		return nil, nil
	}
	for what, version := range p.Hello.Versions {
		entry.Versions[what] = version
	}
	for _, note := range p.Hello.Notes {
		if !slices.Contains(entry.Notes, note) {
			entry.Notes = append(entry.Notes, note)
		}
	}
	return p, nil
}

// compareModels lets programs continue a fixed prompt greedily and says when they disagree: they would not hold the
// same model.
func (b *bench) compareModels(ctx context.Context, crew []*worker.Process) error {
	for _, p := range crew {
		name := p.Hello.Entry
		base, dtype := report.Split(name)
		if b.greedy[name] != nil {
			continue
		}
		f, err := p.Run(ctx, b.material.Greedy(), b.options.limit)
		if err != nil {
			if base == report.Subject || ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(b.console, "%s: the greedy continuation failed: %v\n", name, err)
			continue
		}
		b.greedy[name] = f.Output
		// In 16 bits rounding may lead elsewhere.
		if own := b.greedy[report.Subject]; dtype == report.Float32 && !slices.Equal(own, f.Output) {
			note := fmt.Sprintf("continues the test prompt differently: %v, Gyre %v", f.Output, own)
			entry := b.report.Program(name)
			entry.Notes = append(entry.Notes, note)
			fmt.Fprintf(b.console, "%s: WARNING: %s\n", name, note)
		}
		if name == "transformers" && b.report.Libtorch == 0 {
			if f, err := p.Run(ctx, work.Task{Op: gyre.OpProbe}, b.options.limit); err == nil {
				b.report.Libtorch = f.FLOPS
			}
		}
	}
	return nil
}

// measure measures the machine; the report keeps the best of all.
func (b *bench) measure(ctx context.Context) (work.Machine, error) {
	f, err := b.probe.Run(ctx, work.Task{Op: gyre.OpProbe}, b.options.limit)
	if err != nil {
		return work.Machine{}, fmt.Errorf("measuring the machine: %w", err)
	}
	best := &b.report.Machine
	best.Bandwidth, best.FLOPS, best.FLOPS16 = max(best.Bandwidth, f.Bandwidth), max(best.FLOPS, f.FLOPS),
		max(best.FLOPS16, f.FLOPS16)
	return work.Machine{Bandwidth: f.Bandwidth, FLOPS: f.FLOPS, FLOPS16: f.FLOPS16}, nil
}
