package trainer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"gyre/internal/statistics"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// clock takes the times of a step's phases, and relates what they computed to what the machine can do. A nil clock takes none.
type clock struct {
	work   func() torch.Work // what all models of the run have computed so far
	phases map[string]phase  // of the step in progress
	engine *engineMetrics
}

// phase is a part of a step: its time and its work.
type phase struct {
	seconds float64
	work    torch.Work
}

func newClock(e *equipment) *clock {
	return &clock{phases: map[string]phase{}, work: func() torch.Work {
		var sum torch.Work
		for _, l := range []*train.Learner{e.actor, e.critic, e.reference} {
			if l != nil {
				sum = sum.Add(l.Model.Work())
			}
		}
		return sum
	}}
}

// measure runs a phase of a step; one without a name is not recorded.
func (c *clock) measure(name string, f func() error) error {
	if c == nil || name == "" {
		return f()
	}
	before, begin := c.work(), time.Now()
	err := f()
	c.record(name, time.Since(begin), c.work().Sub(before))
	return err
}

// add records the time of a phase in which no model computed.
func (c *clock) add(name string, took time.Duration) {
	if c != nil {
		c.record(name, took, torch.Work{})
	}
}

func (c *clock) record(name string, took time.Duration, work torch.Work) {
	p := c.phases[name]
	c.phases[name] = phase{p.seconds + took.Seconds(), p.work.Add(work)}
}

// sampling records how a rollout spent its time in the engine.
func (c *clock) sampling(before, after torch.EngineStats) {
	for _, part := range []struct {
		name          string
		before, after torch.EnginePhase
	}{{"prefill", before.Prefill, after.Prefill}, {"decode", before.Decode, after.Decode}, {"sample", before.Sample, after.Sample}} {
		c.record(part.name, time.Duration((part.after.Seconds-part.before.Seconds)*float64(time.Second)), part.after.Work.Sub(part.before.Work))
	}
	c.engine = &engineMetrics{Preemptions: int(after.Preemptions - before.Preemptions)}
	if asked := after.PromptTokens - before.PromptTokens; asked > 0 {
		rate := float64(after.CachedTokens-before.CachedTokens) / float64(asked)
		c.engine.HitRate = &rate
	}
}

// finish ends a step that trained on so many tokens, and that many in its update's epochs: it writes the times of its phases and, where the
// machine's peak is known, the share of it that each has reached.
func (c *clock) finish(line metrics.Line, took time.Duration, machine *experiment.Machine, tokens, updated int) {
	c.add("step", took)
	m := timeMetrics{Seconds: map[string]float64{}, FLOPs: map[string]float64{}, Bytes: map[string]float64{}, Step: took.Seconds(),
		PeakFLOPs: machine.FLOPs / 1e9, PeakBytes: machine.Bandwidth / 1e9, Throughput: float64(tokens) / took.Seconds()}
	for name, p := range c.phases {
		m.Seconds[name] = p.seconds
		if p.seconds > 0 && p.work.FLOPs > 0 && machine.FLOPs > 0 {
			m.FLOPs[name], m.Bytes[name] = p.work.FLOPs/p.seconds/machine.FLOPs, p.work.Bytes/p.seconds/machine.Bandwidth
		}
	}
	if update := c.phases["update_actor"].seconds; update > 0 {
		m.Overhead, m.UpdateRate = c.phases["grad_components"].seconds/update, float64(updated)/update
	}
	line.Add(m, c.engine)
	c.phases, c.engine = map[string]phase{}, nil
}

// traffic is what this rank has sent to others so far, and how long it has waited for them.
type traffic struct {
	world  *ranks.World
	sent   float64
	waited time.Duration
}

func trafficOf(w *ranks.World) traffic {
	t := traffic{world: w}
	t.sent, t.waited = w.Traffic()
	return t
}

// into writes what has been sent since then; one process sends nothing.
func (t traffic) into(line metrics.Line, took time.Duration) {
	if t.world == nil {
		return
	}
	sent, waited := t.world.Traffic()
	line.Add(trafficMetrics{(waited - t.waited).Seconds() / took.Seconds(), (sent - t.sent) / 1e9})
}

// ofAllRanks replaces what a step measured of this process by what it measured of all: times are those of the slowest rank, memory is that of the
// largest, counts are added up, rates and shares are means. It is collective.
func ofAllRanks(ctx context.Context, w *ranks.World, line metrics.Line) error {
	if w == nil {
		return nil
	}
	mine := line.Floats()
	maps.DeleteFunc(mine, func(name string, _ float64) bool {
		return !strings.HasPrefix(name, "timing_s/") && !strings.HasPrefix(name, "perf/")
	})
	all, err := ranks.Gather(ctx, w, mine)
	if err != nil {
		return err
	}
	values := map[string][]float64{}
	for _, part := range all {
		for name, v := range part {
			values[name] = append(values[name], v)
		}
	}
	for name, list := range values {
		switch {
		case strings.HasPrefix(name, "timing_s/"), name == "perf/peak_rss_gib":
			line[name] = slices.Max(list)
		case name == "perf/preemptions":
			line[name] = statistics.Sum(list)
		default:
			line[name] = statistics.Sum(list) / float64(len(list))
		}
	}
	return nil
}

// totals are the seconds that a run has spent so far, interruptions and repeated steps not counted.
type totals struct{ train, eval, checkpoints float64 }

// readTotals adds up what a run's metrics say of the steps before.
func readTotals(path string) (t totals, err error) {
	for record, err := range metrics.Read(path) {
		if err != nil {
			return t, err
		}
		t.add(record.Values)
	}
	return t, nil
}

func (t *totals) add(line metrics.Line) {
	for key, sum := range map[string]*float64{"timing_s/step": &t.train, "timing_s/testing": &t.eval, "timing_s/checkpoint": &t.checkpoints} {
		seconds, _ := line[key].(float64)
		*sum += seconds
	}
}

// into adds a step's line of metrics up and completes it.
func (t *totals) into(line metrics.Line) {
	t.add(line)
	line.Add(totalMetrics{t.train, t.eval, t.train + t.eval + t.checkpoints})
}
