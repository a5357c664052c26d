package session

import (
	"time"

	"gyre/orchestrate/experiment"
	"gyre/orchestrate/run/metrics"
)

// UsefulMetrics divide the time of a step into the least that its work takes on this machine, and what was lost.
type UsefulMetrics struct {
	Useful float64            `metric:"perf/useful" unit:"share" doc:"of the step with its validation and checkpoint: the least time of sampling (arithmetic or memory traffic), log-probs and gradients (arithmetic) and optimizer steps (memory traffic), at the rates perf/peak_*. Absent where these are not known and where other ranks sample"`
	Lost   map[string]float64 `metric:"perf/lost/{part}" unit:"share" doc:"the rest of that time: environments (waiting for them), sampling, log_probs, update (all above their least times), other (filter, advantages, analysis, validation, checkpoint)"`
}

// useful divides a step's time. A part takes at least as long as its arithmetic or its memory traffic, but no longer
// than it took: weights of small models come from caches, which are faster than memory.
func (c *Clock) useful(machine *experiment.Machine, took time.Duration) UsefulMetrics {
	arithmetic := func(name string) float64 { return c.phases[name].work.FLOPs / machine.FLOPs }
	traffic := func(name string) float64 { return c.phases[name].work.Bytes / machine.Bandwidth }
	sampling := max(c.aside.work.FLOPs/machine.FLOPs, c.aside.work.Bytes/machine.Bandwidth)
	for _, name := range []string{"prefill", "decode", "sample"} {
		sampling += max(arithmetic(name), traffic(name))
	}
	waited, whole := c.phases["env_wait"].seconds, took.Seconds()
	m, rest := UsefulMetrics{Lost: map[string]float64{"environments": waited / whole}}, whole-waited
	for _, part := range []struct {
		name   string
		least  float64
		phases []string
	}{
		{"sampling", sampling, []string{"gen"}},
		{"log_probs", arithmetic("old_log_prob") + arithmetic("ref") + arithmetic("values"),
			[]string{"old_log_prob", "ref", "values"}},
		{"update", arithmetic("update_actor") + arithmetic("update_critic") + traffic("optimizer"),
			[]string{"update_actor", "update_critic"}},
	} {
		spent := 0.0
		for _, name := range part.phases {
			spent += c.phases[name].seconds
		}
		least := min(part.least, spent)
		m.Useful, m.Lost[part.name], rest = m.Useful+least/whole, (spent-least)/whole, rest-spent
	}
	m.Lost["other"] = max(rest, 0) / whole
	return m
}

// withOthers makes the shares of a step's time those of its time with its validation and the checkpoint before it.
func withOthers(line metrics.Line) {
	values := line.Floats()
	if _, known := values["perf/useful"]; !known {
		return
	}
	step := values["timing_s/step"]
	share := step / (step + values["timing_s/testing"] + values["timing_s/checkpoint"])
	m := UsefulMetrics{Useful: share * values["perf/useful"], Lost: map[string]float64{}}
	for _, part := range []string{"environments", "sampling", "log_probs", "update", "other"} {
		m.Lost[part] = share * values["perf/lost/"+part]
	}
	m.Lost["other"] += 1 - share
	line.Add(m)
}
