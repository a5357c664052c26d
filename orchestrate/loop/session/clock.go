package session

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
	"gyre/orchestrate/run/spans"
	"gyre/torch"
)

// Clock takes the times of a step's phases, and relates what they computed to what the machine can do. A nil clock
// takes none.
type Clock struct {
	work   func() torch.Work // what all models of the run have computed so far
	phases map[string]phase  // of the step in progress
	alone  bool              // no other ranks sample for the step
	engine *EngineMetrics
	aside  phase           // of the step in progress: what others did in the middle of its phases
	step   context.Context // of the step in progress, for its spans
}

// phase is a part of a step: its time and its work.
type phase struct {
	seconds float64
	work    torch.Work
}

// NewClock is one of a session's models.
func NewClock(s *Session) *Clock {
	alone := s.Config.FSDP.Samplers == 0
	return &Clock{step: context.Background(), phases: map[string]phase{}, alone: alone, work: func() torch.Work {
		var sum torch.Work
		for _, l := range []*train.Learner{s.Actor, s.Critic, s.Reference} {
			if l != nil {
				sum = sum.Add(l.Work())
			}
		}
		return sum
	}}
}

// Begin begins a step: its phases are parts of what ctx tells of it.
func (c *Clock) Begin(ctx context.Context) { c.step = ctx }

// Phase begins a phase of a step; what it returns ends it, told the phase's error. One without a name is not recorded.
func (c *Clock) Phase(name string) (end func(err *error)) {
	if c == nil || name == "" {
		return func(*error) {}
	}
	before, begin, aside, over := c.work(), time.Now(), c.aside, spans.Phase(c.step, name)
	return func(err *error) {
		over(*err)
		took := time.Since(begin) - time.Duration((c.aside.seconds-aside.seconds)*float64(time.Second))
		c.record(name, took, c.work().Sub(before).Sub(c.aside.work.Sub(aside.work)))
	}
}

// Aside runs what others do in the middle of a phase, which does not count as a part of it.
func (c *Clock) Aside(f func() error) error {
	before, begin := c.work(), time.Now()
	err := f()
	c.aside.seconds += time.Since(begin).Seconds()
	c.aside.work = c.aside.work.Add(c.work().Sub(before))
	return err
}

// Add records the time of a phase in which no model computed.
func (c *Clock) Add(name string, took time.Duration) {
	if c != nil {
		c.record(name, took, torch.Work{})
	}
}

func (c *Clock) record(name string, took time.Duration, work torch.Work) {
	p := c.phases[name]
	c.phases[name] = phase{p.seconds + took.Seconds(), p.work.Add(work)}
}

// Sampling records how a rollout spent its time in the engine.
func (c *Clock) Sampling(before, after torch.EngineStats) {
	for _, part := range []struct {
		name          string
		before, after torch.EnginePhase
	}{{"prefill", before.Prefill, after.Prefill}, {"decode", before.Decode, after.Decode}, {"sample", before.Sample,
		after.Sample}} {
		c.record(part.name, time.Duration((part.after.Seconds-part.before.Seconds)*float64(time.Second)),
			part.after.Work.Sub(part.before.Work))
	}
	c.engine = &EngineMetrics{Preemptions: int(after.Preemptions - before.Preemptions),
		Proposed: int(after.ProposedTokens - before.ProposedTokens),
		Accepted: int(after.AcceptedTokens - before.AcceptedTokens)}
	if rows := int(after.HeadRows-before.HeadRows) - c.engine.Proposed; rows > 0 {
		c.engine.TokensPerPass = new(1 + float64(c.engine.Accepted)/float64(rows))
	}
	if asked := after.PromptTokens - before.PromptTokens; asked > 0 {
		c.engine.HitRate = new(float64(after.CachedTokens-before.CachedTokens) / float64(asked))
	}
}

// Finish ends a step that trained on so many tokens, and that many in its update's epochs: it writes the times of its
// phases and, where the machine's peak is known, the share of it that each has reached.
func (c *Clock) Finish(line metrics.Line, took time.Duration, machine *experiment.Machine, tokens, updated int) {
	c.Add("step", took)
	m := TimeMetrics{Seconds: map[string]float64{}, FLOPs: map[string]float64{}, Bytes: map[string]float64{},
		Step: took.Seconds(), Memory: float64(torch.PeakRSS()) / (1 << 30),
		PeakFLOPs: machine.FLOPs / 1e9, PeakBytes: machine.Bandwidth / 1e9,
		Throughput: float64(tokens) / took.Seconds()}
	for name, p := range c.phases {
		m.Seconds[name] = p.seconds
		if p.seconds > 0 && p.work.FLOPs > 0 && machine.FLOPs > 0 {
			m.FLOPs[name] = p.work.FLOPs / p.seconds / machine.FLOPs
		}
		if p.seconds > 0 && p.work.Bytes > 0 && machine.FLOPs > 0 {
			m.Bytes[name] = p.work.Bytes / p.seconds / machine.Bandwidth
		}
	}
	if update := c.phases["update_actor"].seconds; update > 0 {
		m.Overhead, m.UpdateRate = c.phases["grad_components"].seconds/update, float64(updated)/update
	}
	line.Add(m, c.engine)
	if machine.FLOPs > 0 && c.alone {
		line.Add(c.useful(machine, took))
	}
	c.phases, c.engine, c.aside = map[string]phase{}, nil, phase{}
}

// Traffic counts what this rank sends to others from now on, and how long it waits for them. What it returns writes
// that into a line: nothing where nothing was.
func Traffic(w *ranks.World) func(line metrics.Line, took time.Duration) {
	sentBefore, waitedBefore := w.Traffic()
	return func(line metrics.Line, took time.Duration) {
		sent, waited := w.Traffic()
		line.Add(TrafficMetrics{(waited - waitedBefore).Seconds() / took.Seconds(), (sent - sentBefore) / 1e9})
	}
}

// OfAllRanks replaces what a step measured of this process by what it measured of all: times are those of the slowest
// rank, memory is that of the largest, counts are added up, rates and shares are means. It is collective.
func OfAllRanks(ctx context.Context, w *ranks.World, line metrics.Line) error {
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
		case name == "perf/preemptions", name == "perf/proposed_tokens", name == "perf/accepted_tokens":
			line[name] = statistics.Sum(list)
		default:
			line[name] = statistics.Sum(list) / float64(len(list))
		}
	}
	return nil
}

// Totals are the seconds that a run has spent so far, interruptions and repeated steps not counted.
type Totals struct{ train, eval, checkpoints float64 }

// readTotals adds up what a run's metrics say of the steps before.
func readTotals(path string) (t Totals, err error) {
	for record, err := range metrics.Read(path) {
		if err != nil {
			return t, err
		}
		t.add(record.Values)
	}
	return t, nil
}

func (t *Totals) add(line metrics.Line) {
	for key, sum := range map[string]*float64{"timing_s/step": &t.train, "timing_s/testing": &t.eval,
		"timing_s/checkpoint": &t.checkpoints} {
		seconds, _ := line[key].(float64)
		*sum += seconds
	}
}

// Into adds a step's line of metrics up and completes it.
func (t *Totals) Into(line metrics.Line) {
	t.add(line)
	withOthers(line)
	line.Add(TotalMetrics{t.train, t.eval, t.train + t.eval + t.checkpoints})
}

// EngineMetrics describe what a rollout asked of the sampler's engine.
type EngineMetrics struct {
	HitRate     *float64 `metric:"perf/kv_hit_rate" unit:"share" doc:"of the prompts' tokens whose keys and values were there already"`
	Preemptions int      `metric:"perf/preemptions" doc:"sequences that lost their keys and values to others and were computed again"`

	Proposed      int      `metric:"perf/proposed_tokens" unit:"tokens" doc:"tried by engine.speculation"`
	Accepted      int      `metric:"perf/accepted_tokens" unit:"tokens" doc:"of them: drawn"`
	TokensPerPass *float64 `metric:"perf/tokens_per_pass" unit:"tokens" doc:"drawn for a sequence in a pass; 1 without speculation"`
}

// TimeMetrics are the times of a step and what the machine reached in them. Over ranks, times are those of the
// slowest, rates and shares are means.
type TimeMetrics struct {
	Seconds    map[string]float64 `metric:"timing_s/{phase}" unit:"s" doc:"time of a phase: step (all of it), gen, env_wait, wait_sampler (replies waited for the update), wait_trainer (the update waited for its batch), prefill, decode, sample, collapse_metrics, filter, old_log_prob, ref, values, adv, update_critic, gradient_analysis, grad_components, update_actor, optimizer (a part of the updates), checkpoint (of the step before), testing"`
	FLOPs      map[string]float64 `metric:"perf/mfu/{phase}" unit:"share" doc:"of the machine's peak arithmetic that a phase reached"`
	Bytes      map[string]float64 `metric:"perf/mbu/{phase}" unit:"share" doc:"of the machine's memory bandwidth that a phase needs at least"`
	PeakFLOPs  float64            `metric:"perf/peak_gflops,omitzero" unit:"GFLOP/s" doc:"the machine's peak as measured in the model's type, once the run has taken ten seconds"`
	PeakBytes  float64            `metric:"perf/peak_gbytes_per_s,omitzero" unit:"GB/s" doc:"the machine's memory bandwidth as measured"`
	Memory     float64            `metric:"perf/peak_rss_gib" unit:"GiB" doc:"most memory that the process has held so far; of ranks, the largest"`
	Step       float64            `metric:"perf/time_per_step" unit:"s" doc:"the same as timing_s/step"`
	Throughput float64            `metric:"perf/throughput,omitzero" unit:"tokens/s" doc:"tokens trained on over the time of the step"`
	UpdateRate float64            `metric:"perf/update_tokens_per_s,omitzero" unit:"tokens/s" doc:"tokens of all epochs over the time of the actor's update"`
	Overhead   float64            `metric:"perf/grad_components_overhead,omitzero" unit:"share" doc:"time of the reward components' gradients over that of the actor's update"`
}

// TrafficMetrics describe what ranks sent to one another.
type TrafficMetrics struct {
	Share float64 `metric:"perf/comm_share,omitzero" unit:"share" doc:"of the step in which a rank waited for others"`
	Sent  float64 `metric:"perf/comm_sent_gb,omitzero" unit:"GB" doc:"sent by a rank"`
}

// TotalMetrics are the seconds that the run has spent so far.
type TotalMetrics struct {
	Train float64 `metric:"timing_s/train_total" unit:"s" doc:"steps so far"`
	Eval  float64 `metric:"timing_s/eval_total" unit:"s" doc:"validations so far"`
	All   float64 `metric:"timing_s/total" unit:"s" doc:"steps, validations and checkpoints so far; interruptions and repeated steps do not count"`
}

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
