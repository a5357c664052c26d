package trainer

import (
	"fmt"
	"time"

	"gyre/torch"
)

// profile relates what the phases of a step computed to what the machine can do.
type profile struct {
	begin            time.Time
	fixedThreads     bool    // by run.threads or GYRE_THREADS
	onDevice         bool    // the models are not computed by the CPU's kernels, whose peak says nothing then
	bandwidth, flops float64 // the machine's peak, in bytes and operations per second; 0 until measured
	phases           []phase // of the step in progress
}

// phase is a finished part of a step: its work, and the time in which the models were computing.
type phase struct {
	name    string
	work    torch.Work
	seconds float64
}

// worthMeasuring is how long a run must have lasted before it spends half a second on measuring the machine.
const worthMeasuring = 10 * time.Second

// clearlyFaster is how much more arithmetic fewer threads must do to be preferred: less is noise.
const clearlyFaster = 1.1

// work is what all models of the run have computed so far.
func (t *Trainer) work() torch.Work {
	var sum torch.Work
	for _, l := range []*learner{t.actor, t.critic} {
		if l != nil {
			sum = sum.Add(l.model.Work())
		}
	}
	if t.reference != nil {
		sum = sum.Add(t.reference.Work())
	}
	return sum
}

// measure runs a phase and records its time and its work.
func (t *Trainer) measure(m map[string]float64, name string, f func() error) error {
	before, begin := t.work(), time.Now()
	err := f()
	seconds := time.Since(begin).Seconds()
	m["timing_s/"+name] += seconds
	t.profile.add(name, t.work().Sub(before), seconds)
	return err
}

func (p *profile) add(name string, work torch.Work, seconds float64) {
	p.phases = append(p.phases, phase{name, work, seconds})
}

// sampling records how a rollout spent its time in the engine.
func (p *profile) sampling(before, after torch.EngineStats, m map[string]float64) {
	for _, part := range []struct {
		name          string
		before, after torch.EnginePhase
	}{{"prefill", before.Prefill, after.Prefill}, {"decode", before.Decode, after.Decode}, {"sample", before.Sample, after.Sample}} {
		seconds := (part.after.Time - part.before.Time).Seconds()
		m["timing_s/"+part.name] += seconds
		p.add(part.name, part.after.Work.Sub(part.before.Work), seconds)
	}
	if asked := after.PromptTokens - before.PromptTokens; asked > 0 {
		m["perf/kv_hit_rate"] = float64(after.CachedTokens-before.CachedTokens) / float64(asked)
	}
	m["perf/preemptions"] = float64(after.Preemptions - before.Preemptions)
}

// measure finds the machine's peak and, unless the number of threads was given, the number that reaches it: where two
// threads share a core, or other programs keep some busy, fewer can be faster. Results do not depend on it.
func (p *profile) measure() error {
	most := torch.Threads()
	candidates := []int{most}
	if !p.fixedThreads && most > 1 {
		candidates = append(candidates, (most+1)/2)
	}
	best := most
	for _, n := range candidates {
		if err := torch.SetThreads(n); err != nil {
			return err
		}
		bandwidth, flops, err := torch.Measure()
		if err != nil {
			return err
		}
		if flops > clearlyFaster*p.flops {
			best, p.bandwidth, p.flops = n, bandwidth, flops
		}
	}
	return torch.SetThreads(best)
}

// into ends a step: it writes the share of the machine's peak that every phase reached.
func (p *profile) into(m map[string]float64) error {
	phases := p.phases
	p.phases = nil
	if p.onDevice {
		return nil
	}
	if p.flops == 0 {
		if time.Since(p.begin) < worthMeasuring {
			return nil
		}
		if err := p.measure(); err != nil {
			return fmt.Errorf("measuring the machine: %w", err)
		}
	}
	m["perf/peak_gflops"], m["perf/peak_gbytes_per_s"] = p.flops/1e9, p.bandwidth/1e9
	sums := map[string]phase{}
	for _, x := range phases {
		sum := sums[x.name]
		sums[x.name] = phase{x.name, sum.work.Add(x.work), sum.seconds + x.seconds}
	}
	for name, x := range sums {
		if x.seconds > 0 && x.work.FLOPs > 0 {
			m["perf/mfu/"+name] = x.work.FLOPs / x.seconds / p.flops
			m["perf/mbu/"+name] = x.work.Bytes / x.seconds / p.bandwidth
		}
	}
	return nil
}
