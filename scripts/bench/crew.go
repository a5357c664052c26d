package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gyre/scripts/bench/gyre"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

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
	case report.Base(name) == report.Subject:
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
			if report.Base(m.name) == report.Subject || ctx.Err() != nil {
				return err
			}
			fmt.Fprintf(b.console, "%s: the greedy continuation failed: %v\n", m.name, err)
			continue
		}
		b.greedy[m.name] = f.Output
		// In 16 bits rounding may lead elsewhere.
		if own := b.greedy[report.Subject]; report.Type(m.name) == report.Float32 && !slices.Equal(own, f.Output) {
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

// settle is how long threads may go on spinning after a task: Intel's OpenMP lets them for a fifth of a second.
const settle = 300 * time.Millisecond

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
	if report.Base(m.name) != report.Subject { // Gyre's threads go to sleep at once
		defer time.Sleep(settle)
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
