package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gyre/orchestrate/checkpoint"
	"gyre/orchestrate/metrics"
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
	done     int
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
	b.report = &report.Report{Date: time.Now().Format(time.DateOnly), CPU: worker.Processor(), Threads: o.threads, Model: filepath.Base(o.model)}
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
		work.Scoring: {"transformers"}, work.Update: {"transformers"}, work.Group: {"transformers"}, work.GRPO: {"trl"},
	}[s]
	out := []string{report.Subject}
	for _, name := range able {
		if slices.Contains(b.options.peers, name) {
			out = append(out, name)
		}
	}
	return out
}

// run measures cases, session after session.
func (b *bench) run(ctx context.Context, cases []work.Case) error {
	var err error
	if b.probe == nil {
		if b.probe, err = worker.Start(ctx, b.gyre()); err != nil {
			return err
		}
	}
	total := 0
	for _, c := range cases {
		total += (b.options.repeats + 1) * len(b.programs(c.Session))
	}
	b.bar, b.done = b.console.Bar("bench", total), 0
	defer b.bar.Close()
	for _, s := range work.Sessions {
		var ofSession []work.Case
		for _, c := range cases {
			if c.Session == s {
				ofSession = append(ofSession, c)
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
func (b *bench) session(ctx context.Context, s work.Session, cases []work.Case) error {
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
	for _, c := range cases {
		into := b.caseReport(c)
		for repeat := range b.options.repeats + 1 {
			task, err := b.material.Task(c, repeat)
			if err != nil {
				return err
			}
			machine, err := b.measure(ctx)
			if err != nil {
				return err
			}
			for _, m := range crew.members {
				sample, err := crew.run(ctx, m, task)
				switch {
				case ctx.Err() != nil:
					return context.Cause(ctx)
				case err != nil && m.name == report.Subject:
					return fmt.Errorf("%s: %w", c.Name, err)
				case err != nil:
					into.Failures[m.name] = err.Error()
					fmt.Fprintf(b.console, "%s: FAILED: %v\n", c.Name, err)
				case repeat > 0:
					sample.Repeat, sample.Machine = len(into.Samples[m.name])+1, machine
					sample.Nearby = work.Bound(c, task, b.model, machine)
					into.Samples[m.name] = append(into.Samples[m.name], sample)
					b.atEnd = append(b.atEnd, func() {
						samples := b.caseReport(c).Samples[m.name]
						samples[sample.Repeat-1].Bounds = work.Bound(c, task, b.model, b.report.Machine)
					})
					b.others = append(b.others, sample.Others)
					fmt.Fprintf(b.console, "%s %d/%d: %s: %.1f tokens/s, %.2f s\n", c.Name, repeat, b.options.repeats, m.name, sample.Speed(), sample.Seconds)
				}
				b.done++
				b.bar.Set(b.done)
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
	best.Bandwidth, best.FLOPS = max(best.Bandwidth, f.Bandwidth), max(best.FLOPS, f.FLOPS)
	return work.Machine{Bandwidth: f.Bandwidth, FLOPS: f.FLOPS}, nil
}

// member is a running worker.
type member struct {
	name    string
	process *worker.Process
	gone    bool
}

// crew are the workers of a session.
type crew struct {
	bench   *bench
	members []*member
}

// start adds a program, or says why it is skipped.
func (c *crew) start(ctx context.Context, name string, s work.Session) error {
	b := c.bench
	entry := b.report.Program(name)
	if entry.Skipped != "" {
		return nil
	}
	process, err := b.startProgram(ctx, name, s)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case name == report.Subject:
		return err
	default:
		entry.Skipped = err.Error()
		if errors.Is(err, worker.ErrUnavailable) {
			entry.Skipped += "; scripts/bench/setup-peers.sh DIR installs it, -peers-dir DIR finds it"
		}
		fmt.Fprintf(b.console, "%s: SKIPPED: %s\n", name, entry.Skipped)
		return nil
	}
	for what, version := range process.Hello.Versions {
		entry.Versions[what] = version
	}
	for _, note := range process.Hello.Notes {
		if !slices.Contains(entry.Notes, note) {
			entry.Notes = append(entry.Notes, note)
		}
	}
	c.members = append(c.members, &member{name: name, process: process})
	return nil
}

// compareModels lets programs continue a fixed prompt greedily and says when they disagree: they would not hold the same model.
func (c *crew) compareModels(ctx context.Context) error {
	b := c.bench
	for _, m := range c.members {
		if b.greedy[m.name] != nil {
			continue
		}
		f, err := m.process.Run(ctx, b.material.Greedy(), b.options.limit)
		if err != nil {
			if m.name == report.Subject || ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(b.console, "%s: the greedy continuation failed: %v\n", m.name, err)
			continue
		}
		b.greedy[m.name] = f.Output
		if own := b.greedy[report.Subject]; !slices.Equal(own, f.Output) {
			note := fmt.Sprintf("continues the test prompt differently: %v, Gyre %v", f.Output, own)
			b.report.Program(m.name).Notes = append(b.report.Program(m.name).Notes, note)
			fmt.Fprintf(b.console, "%s: WARNING: %s\n", m.name, note)
		}
		if m.name == "transformers" && b.report.Libtorch == 0 {
			if f, err := m.process.Run(ctx, work.Task{Op: gyre.OpProbe}, b.options.limit); err == nil {
				b.report.Libtorch = f.FLOPS
			}
		}
	}
	return nil
}

// run has one program do a task while the others wait, and measures it from outside where the system allows it.
func (c *crew) run(ctx context.Context, m *member, task work.Task) (report.Sample, error) {
	if m.gone {
		return report.Sample{}, fmt.Errorf("%s: %w", m.name, worker.ErrGone)
	}
	pid := m.process.PID()
	external := worker.ResetPeak(pid) == nil
	before, usageErr := worker.Usage(pid)
	begin := time.Now()
	figures, err := m.process.Run(ctx, task, c.bench.options.limit)
	elapsed := time.Since(begin)
	if err != nil {
		m.gone = errors.Is(err, worker.ErrGone)
		return report.Sample{}, err
	}
	sample := report.Sample{Figures: figures}
	if usageErr == nil {
		if after, err := worker.Usage(pid); err == nil {
			sample.Others = max(0, (after.System-before.System-(after.Process-before.Process)).Seconds()/elapsed.Seconds())
		}
	}
	if external {
		if peak, err := worker.PeakBytes(pid); err == nil {
			sample.PeakBytes = peak
		}
	}
	return sample, nil
}

// dismissGone ends what can take no further task.
func (c *crew) dismissGone() {
	c.members = slices.DeleteFunc(c.members, func(m *member) bool {
		if m.gone {
			m.process.Close()
		}
		return m.gone
	})
}

func (c *crew) close() {
	for _, m := range c.members {
		m.process.Close()
	}
}
