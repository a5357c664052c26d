package trainer

import (
	"time"

	"gyre/orchestrate/experiment"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// clock relates what the phases of a step computed to what the machine can do.
type clock struct{ phases []phase } // of the step in progress

// phase is a finished part of a step: its work, and the time in which the models were computing.
type phase struct {
	name    string
	work    torch.Work
	seconds float64
}

// work is what all models of the run have computed so far.
func (e *equipment) work() torch.Work {
	var sum torch.Work
	for _, l := range []*learner{e.actor, e.critic} {
		if l != nil {
			sum = sum.Add(l.model.Work())
		}
	}
	if e.reference != nil {
		sum = sum.Add(e.reference.Work())
	}
	return sum
}

// measure runs a part of a step and records its time and its work.
func (e *equipment) measure(m map[string]float64, name string, f func() error) error {
	before, begin := e.work(), time.Now()
	err := f()
	seconds := time.Since(begin).Seconds()
	m["timing_s/"+name] += seconds
	e.clock.add(name, e.work().Sub(before), seconds)
	return err
}

func (c *clock) add(name string, work torch.Work, seconds float64) {
	c.phases = append(c.phases, phase{name, work, seconds})
}

// sampling records how a rollout spent its time in the engine.
func (c *clock) sampling(before, after torch.EngineStats, m map[string]float64) {
	for _, part := range []struct {
		name          string
		before, after torch.EnginePhase
	}{{"prefill", before.Prefill, after.Prefill}, {"decode", before.Decode, after.Decode}, {"sample", before.Sample, after.Sample}} {
		seconds := (part.after.Time - part.before.Time).Seconds()
		m["timing_s/"+part.name] += seconds
		c.add(part.name, part.after.Work.Sub(part.before.Work), seconds)
	}
	if asked := after.PromptTokens - before.PromptTokens; asked > 0 {
		m["perf/kv_hit_rate"] = float64(after.CachedTokens-before.CachedTokens) / float64(asked)
	}
	m["perf/preemptions"] = float64(after.Preemptions - before.Preemptions)
}

// into ends a step: it writes the share of the machine's peak that every phase reached, once that peak is known.
func (c *clock) into(m map[string]float64, machine *experiment.Machine) {
	phases := c.phases
	c.phases = nil
	if machine.FLOPs == 0 {
		return
	}
	m["perf/peak_gflops"], m["perf/peak_gbytes_per_s"] = machine.FLOPs/1e9, machine.Bandwidth/1e9
	sums := map[string]phase{}
	for _, x := range phases {
		sum := sums[x.name]
		sums[x.name] = phase{x.name, sum.work.Add(x.work), sum.seconds + x.seconds}
	}
	for name, x := range sums {
		if x.seconds > 0 && x.work.FLOPs > 0 {
			m["perf/mfu/"+name] = x.work.FLOPs / x.seconds / machine.FLOPs
			m["perf/mbu/"+name] = x.work.Bytes / x.seconds / machine.Bandwidth
		}
	}
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

func (t *totals) add(values map[string]any) {
	for key, sum := range map[string]*float64{"timing_s/step": &t.train, "timing_s/testing": &t.eval, "timing_s/checkpoint": &t.checkpoints} {
		seconds, _ := values[key].(float64)
		*sum += seconds
	}
}

// into adds a step's line of metrics up and completes it.
func (t *totals) into(values map[string]any) {
	t.add(values)
	values["timing_s/train_total"], values["timing_s/eval_total"], values["timing_s/total"] = t.train, t.eval, t.train+t.eval+t.checkpoints
}

// throughput relates the tokens of a finished step to its time.
func throughput(m map[string]float64) {
	seconds := m["timing_s/step"]
	m["perf/time_per_step"] = seconds
	if tokens, ok := m["perf/total_num_tokens"]; ok && seconds > 0 {
		m["perf/throughput"] = tokens / seconds
	}
}
