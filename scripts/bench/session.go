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
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// limit is what a program may take for one task.
const limit = 15 * time.Minute

// probe asks Gyre's worker, or transformers', what the machine can do.
var probe = work.Task{Case: work.Case{Op: work.OpProbe}}

// bench is a run in progress. One goroutine uses it.
type bench struct {
	options  options
	console  *metrics.Console
	material *work.Material
	model    torch.ModelConfig
	report   *report.Report
	probe    *worker.Process // of Gyre, which measures the machine
}

func newBench(ctx context.Context, o options) (*bench, error) {
	config, err := checkpoint.ReadConfig(o.Model)
	if err != nil {
		return nil, fmt.Errorf("%w (scripts/get-smollm2.sh makes the model)", err)
	}
	material, err := work.NewMaterial(o.Model, o.repeats)
	if err != nil {
		return nil, err
	}
	set, err := torch.InstructionSetInUse() // clouds hide a processor's number
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, console: metrics.NewConsole(os.Stderr), material: material, model: config.ModelConfig}
	b.report = &report.Report{Date: time.Now().Format(time.DateOnly), CPU: worker.Processor() + ", " + set.Name,
		BF16: worker.HasBF16(), Threads: o.Threads, Model: filepath.Base(o.Model), Device: o.On.Device}
	b.probe, err = b.launch(ctx, report.Subject, "")
	return b, err
}

// selected are the cases of this run. One thread cannot be divided among ranks, and passes take much time and memory.
func (b *bench) selected() []work.Case {
	return slices.DeleteFunc(work.Cases(), func(c work.Case) bool {
		return !b.options.includes(c.Name) || b.options.quick && len(b.options.only) == 0 && !c.InQuick() ||
			c.Session == work.Ranks && b.options.Threads < 2 || c.Session == work.Passes && len(b.options.only) == 0
	})
}

// entries are the programs of some cases in their types, Gyre first.
func (b *bench) entries(s work.Session, cases []work.Case) []string {
	var out []string
	for _, name := range slices.Concat(own, b.options.peers) {
		takesPart := func(c work.Case) bool { return takesPart(c, name) }
		if !slices.ContainsFunc(cases, takesPart) {
			continue
		}
		for _, t := range report.Types(name) {
			if t == report.Float32 || b.options.types != "f32" && s != work.Environments && s != work.Waiting {
				out = append(out, report.In(name, t))
			}
		}
	}
	return out
}

func takesPart(c work.Case, program string) bool {
	_, known := c.Peers[program]
	return known || program == report.Subject
}

// run measures cases, session after session.
func (b *bench) run(ctx context.Context, cases []work.Case) error {
	bar := b.console.Bar("bench: cases", len(cases))
	defer bar.Close()
	done := 0
	for _, s := range work.Sessions {
		of := slices.DeleteFunc(slices.Clone(cases), func(c work.Case) bool { return c.Session != s })
		if len(of) == 0 {
			continue
		}
		if err := b.session(ctx, s, of, func() { done++; bar.Set(done) }); err != nil {
			return err
		}
	}
	b.report.Finish()
	return nil
}

// session starts its programs and measures its cases, and calls done after each. A peer that fails is left out from
// then on; only Gyre's failures end the run.
func (b *bench) session(ctx context.Context, s work.Session, cases []work.Case, done func()) error {
	var crew []*worker.Process
	defer func() {
		for _, p := range crew {
			p.Close()
		}
	}()
	for _, name := range b.entries(s, cases) {
		p, err := b.start(ctx, name, s)
		if err != nil {
			return err
		}
		if p != nil {
			crew = append(crew, p)
		}
	}
	if s.HoldsModel() {
		if err := b.compareModels(ctx, crew); err != nil {
			return err
		}
	}
	for _, c := range cases {
		for repeat := range c.Repeats(b.options.repeats) + 1 { // the first warms up
			task, err := b.material.Task(c, repeat)
			if err != nil {
				return err
			}
			var machine work.Machine
			if s != work.Environments { // which have no least time
				if machine, err = b.measure(ctx); err != nil {
					return err
				}
			}
			for _, p := range crew {
				if err := b.sample(ctx, p, c, task, repeat, machine); err != nil {
					return err
				}
			}
		}
		done()
	}
	return nil
}

// sample has a program do a task, and keeps the figures unless the task only warms up.
func (b *bench) sample(ctx context.Context, p *worker.Process, c work.Case, task work.Task, repeat int,
	machine work.Machine) error {
	base, dtype := report.Split(p.Program)
	if p.Gone || !takesPart(c, base) {
		return nil
	}
	into := b.report.Case(c)
	figures, others, err := p.Measured(ctx, task, limit)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && base == report.Subject:
		return fmt.Errorf("%s: %w", c.Name, err)
	case err != nil:
		into.Failures[p.Program] = err.Error()
		fmt.Fprintf(b.console, "%s: FAILED: %v\n", c.Name, err)
	case repeat > 0:
		s := report.Sample{Figures: figures, Machine: machine, Others: others,
			Bounds: work.Bound(task, b.model, machine, dtype != report.Float32)}
		into.Samples[p.Program] = append(into.Samples[p.Program], s)
		fmt.Fprintf(b.console, "%s %d/%d: %s: %.1f tokens/s, %.2f s\n", c.Name, repeat, c.Repeats(b.options.repeats),
			p.Program, s.Speed(), s.Seconds)
	}
	return nil
}

func (b *bench) launch(ctx context.Context, entry string, s work.Session) (*worker.Process, error) {
	command, err := b.command(entry, s)
	if err != nil {
		return nil, err
	}
	return worker.Start(ctx, entry, command)
}

// start starts a program, or notes why it is skipped and gives nil.
func (b *bench) start(ctx context.Context, entry string, s work.Session) (*worker.Process, error) {
	noted := b.report.Program(entry)
	if noted.Skipped != "" {
		return nil, nil
	}
	p, err := b.launch(ctx, entry, s)
	base, _ := report.Split(entry)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && base == report.Subject:
		return nil, err
	case err != nil:
		noted.Skipped = err.Error()
		if errors.Is(err, worker.ErrUnavailable) {
			noted.Skipped += "; scripts/bench/setup-peers.sh DIR installs it, -peers-dir DIR finds it"
		}
		fmt.Fprintf(b.console, "%s: SKIPPED: %s\n", entry, noted.Skipped)
		return nil, nil
	}
	for what, version := range p.Hello.Versions {
		noted.Versions[what] = version
	}
	for _, text := range p.Hello.Notes {
		noted.Note(text)
	}
	return p, nil
}

// compareModels lets programs continue a fixed prompt greedily and says when they disagree: they would not hold the
// same model.
func (b *bench) compareModels(ctx context.Context, crew []*worker.Process) error {
	var own []int32
	for _, p := range crew {
		base, dtype := report.Split(p.Program)
		f, err := p.Run(ctx, b.material.Greedy(), limit)
		switch {
		case err != nil && (base == report.Subject || ctx.Err() != nil):
			return err
		case err != nil:
			fmt.Fprintf(b.console, "%s: the greedy continuation failed: %v\n", p.Program, err)
			continue
		case p.Program == report.Subject:
			own = f.Output
		case dtype == report.Float32 && !slices.Equal(own, f.Output): // in 16 bits rounding may lead elsewhere
			text := fmt.Sprintf("continues the test prompt differently: %v, Gyre %v", f.Output, own)
			b.report.Program(p.Program).Note(text)
			fmt.Fprintf(b.console, "%s: WARNING: %s\n", p.Program, text)
		}
		if p.Program == "transformers" && b.report.Libtorch == 0 {
			if f, err := p.Run(ctx, probe, limit); err == nil {
				b.report.Libtorch = f.Machine.FLOPS
			}
		}
	}
	return nil
}

// measure measures the machine; the report keeps the best of all.
func (b *bench) measure(ctx context.Context) (work.Machine, error) {
	f, err := b.probe.Run(ctx, probe, limit)
	if err != nil {
		return work.Machine{}, fmt.Errorf("measuring the machine: %w", err)
	}
	best, now := &b.report.Machine, f.Machine
	*best = work.Machine{Bandwidth: max(best.Bandwidth, now.Bandwidth), FLOPS: max(best.FLOPS, now.FLOPS),
		FLOPS16: max(best.FLOPS16, now.FLOPS16), Rows: max(best.Rows, now.Rows)}
	return now, nil
}
