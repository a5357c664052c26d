package main

import (
	"context"
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

// bench is a run in progress.
type bench struct {
	options  options
	console  *metrics.Console
	material *work.Material
	model    torch.ModelConfig
	report   *report.Report
	scripts  string // folder of the peers' workers
	probe    *worker.Process
	greedy   map[string][]int32 // the continuation that each program gave
	others   []float64
	atEnd    []func() // what needs the best measurement of the machine
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
	b := &bench{options: o, console: console, material: material, model: config.Model, greedy: map[string][]int32{}}
	b.report = &report.Report{Date: time.Now().Format(time.DateOnly), CPU: worker.Processor(), BF16: worker.HasBF16(), Threads: o.threads, Model: filepath.Base(o.model),
		Device: o.device}
	if b.scripts, err = unpackScripts(); err != nil {
		return nil, err
	}
	return b, nil
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

// programs are those that know a session's work, Gyre first.
func (b *bench) programs(s work.Session) []string {
	able := map[work.Session][]string{
		work.Distinct: {"transformers", "vllm", "llama"}, work.Shared: {"transformers", "vllm", "llama"},
		work.Scoring: {"transformers"}, work.Update: {"transformers"}, work.Group: {"transformers"}, work.Analysis: {"transformers"},
		work.GRPO: {"trl"},
	}[s]
	var out []string
	for _, name := range append([]string{report.Subject}, able...) {
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

// run measures cases, session after session.
func (b *bench) run(ctx context.Context, cases []work.Case) error {
	if b.probe == nil {
		var err error
		if b.probe, err = worker.Start(ctx, b.gyre(report.Subject, "")); err != nil {
			return err
		}
	}
	if _, err := b.measure(ctx); err != nil {
		return err
	}
	plan, err := b.prepare(cases)
	if err != nil {
		return err
	}
	b.bar = b.console.Bar("bench: percent", 100)
	defer b.bar.Close()
	for _, s := range work.Sessions {
		var ofSession []prepared
		for _, p := range plan {
			if p.Session == s {
				ofSession = append(ofSession, p)
			}
		}
		if len(ofSession) > 0 {
			if err := b.session(ctx, s, ofSession); err != nil {
				return err
			}
		}
	}
	b.report.Others = mean(b.others)
	for _, f := range b.atEnd {
		f()
	}
	return nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / max(float64(len(values)), 1)
}

// session starts its programs and measures its cases. A peer that fails is left out from then on; only Gyre's failures end the run.
func (b *bench) session(ctx context.Context, s work.Session, cases []prepared) error {
	crew := &crew{bench: b}
	defer crew.close()
	for _, name := range b.programs(s) {
		if err := crew.start(ctx, name, s); err != nil {
			return err
		}
	}
	if s != work.GRPO {
		if err := crew.compareModels(ctx); err != nil {
			return err
		}
	}
	for _, p := range cases {
		c := p.Case
		into := b.caseReport(c)
		for repeat, task := range p.tasks {
			machine, err := b.measure(ctx)
			if err != nil {
				return err
			}
			for _, m := range crew.members {
				sample, err := crew.run(ctx, m, task)
				switch {
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case err != nil && report.Base(m.name) == report.Subject:
					return fmt.Errorf("%s: %w", c.Name, err)
				case err != nil:
					into.Failures[m.name] = err.Error()
					fmt.Fprintf(b.console, "%s: FAILED: %v\n", c.Name, err)
				case repeat > 0:
					sample.Repeat, sample.Machine = len(into.Samples[m.name])+1, machine
					half := report.Type(m.name) != report.Float32
					sample.Nearby = work.Bound(c, task, b.model, machine, half)
					into.Samples[m.name] = append(into.Samples[m.name], sample)
					b.atEnd = append(b.atEnd, func() {
						samples := b.caseReport(c).Samples[m.name]
						samples[sample.Repeat-1].Bounds = work.Bound(c, task, b.model, b.report.Machine, half)
					})
					b.others = append(b.others, sample.Others)
					fmt.Fprintf(b.console, "%s %d/%d: %s: %.1f tokens/s, %.2f s\n", c.Name, repeat, len(p.tasks)-1, m.name, sample.Speed(), sample.Seconds)
				}
				b.done += b.weight(c, task)
				b.bar.Set(int(100 * b.done / b.total))
			}
			crew.dismissGone()
		}
	}
	return nil
}

// caseReport finds or adds the results of a case.
func (b *bench) caseReport(c work.Case) *report.Case {
	for i := range b.report.Cases {
		if b.report.Cases[i].Name == c.Name {
			return &b.report.Cases[i]
		}
	}
	b.report.Cases = append(b.report.Cases, report.Case{Name: c.Name, Title: c.Title, Op: c.Op,
		Samples: map[string][]report.Sample{}, Failures: map[string]string{}})
	return &b.report.Cases[len(b.report.Cases)-1]
}

// measure measures the machine; the report keeps the best of all.
func (b *bench) measure(ctx context.Context) (work.Machine, error) {
	f, err := b.probe.Run(ctx, work.Task{Op: gyre.OpProbe}, b.options.limit)
	if err != nil {
		return work.Machine{}, fmt.Errorf("measuring the machine: %w", err)
	}
	best := &b.report.Machine
	best.Bandwidth, best.FLOPS, best.FLOPS16 = max(best.Bandwidth, f.Bandwidth), max(best.FLOPS, f.FLOPS), max(best.FLOPS16, f.FLOPS16)
	return work.Machine{Bandwidth: f.Bandwidth, FLOPS: f.FLOPS, FLOPS16: f.FLOPS16}, nil
}

// prepared is a case with its tasks, the warm-up first.
type prepared struct {
	work.Case
	tasks []work.Task
}

// prepare makes all tasks and weighs them, so that the time left can be told.
func (b *bench) prepare(cases []work.Case) ([]prepared, error) {
	b.done, b.total = 0, 0
	var plan []prepared
	for _, c := range cases {
		p := prepared{Case: c}
		for repeat := range c.Repeats(b.options.repeats) + 1 {
			task, err := b.material.Task(c, repeat)
			if err != nil {
				return nil, err
			}
			p.tasks = append(p.tasks, task)
			b.total += b.weight(c, task) * float64(len(b.programs(c.Session)))
		}
		plan = append(plan, p)
	}
	return plan, nil
}

// weight is how long a task takes, in no unit. The first summand stands for what does not grow with the work.
func (b *bench) weight(c work.Case, t work.Task) float64 {
	return 0.2 + work.Bound(c, t, b.model, work.Machine{Bandwidth: 3e10, FLOPS: 1e11}, false).Total
}
