package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/scripts/bench/work"
)

// sections in the order of the report, by operation.
var sections = []struct{ op, title, explanation string }{
	{work.OpGenerate, "Generation", "Prompts of 128 random tokens, 64 new ones each, temperature 1, no end of sequence. Tokens/s are new tokens, prompts included in the time."},
	{work.OpRollout, "Multi-turn rollout", "Sokoban episodes of growing history, replies of 32 tokens. Tokens/s are reply tokens."},
	{work.OpLogprobs, "Log-probs", "One forward pass over four sequences of 256 tokens, log-probs of all of them."},
	{work.OpUpdate, "Update", "Forward, backward and AdamW of a clipped policy loss. Tokens/s count every token of every sequence, shared ones too."},
	{work.OpAnalysis, "Gradient analysis of the model", "Norms of the gradients of task, entropy and KL for two buckets of sequences and for all: transformers goes forward and back for each of " +
		"the nine, Gyre once forward per sequence and three times back, all being the sum of the buckets. Tokens/s count every token once."},
	{work.OpGRPO, "A GRPO step", "Sampling, reward, advantages, one update; prompts of 128 tokens. Tokens/s are sampled tokens over the whole step."},
}

// Markdown is the report for people: tables that are readable as they are.
func (r *Report) Markdown() string {
	var b strings.Builder
	r.head(&b)
	for _, section := range sections {
		var cases []Case
		for _, c := range r.Cases {
			if c.Op == section.op {
				cases = append(cases, c)
			}
		}
		if len(cases) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n%s", section.title, section.explanation, r.comparison(cases))
		for _, c := range cases {
			if turns := r.turns(c); turns != "" {
				fmt.Fprintf(&b, "\nSeconds per turn as the history grows (medians):\n\n%s", turns)
			}
			for _, name := range slices.Sorted(maps.Keys(c.Failures)) {
				fmt.Fprintf(&b, "\n%s failed at %s: %s\n", name, c.Title, c.Failures[name])
			}
		}
	}
	r.analysis(&b)
	r.ranks(&b)
	r.environments(&b)
	return b.String()
}

func (r *Report) head(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d threads, %s. Model: %s.\n\n", r.CPU, r.Threads, r.Date, r.Model)
	if r.OnDevice() {
		fmt.Fprintf(b, "Models compute on %s; the peaks that follow and the peaks of memory are the CPU's. No floors are asked there.\n\n", r.Device)
	}
	fmt.Fprintf(b, "Measured beside the work: memory is read at %.1f GB/s, matrix products reach %.0f GFLOP/s", r.Machine.Bandwidth/1e9, r.Machine.FLOPS/1e9)
	if r.Machine.FLOPS16 > 0 {
		fmt.Fprintf(b, " in float32 and %.0f in bfloat16", r.Machine.FLOPS16/1e9)
	}
	if r.Libtorch > 0 {
		fmt.Fprintf(b, " (libtorch's reach %.0f in float32)", r.Libtorch/1e9)
	}
	if len(r.Cases) > 0 {
		fmt.Fprintf(b, ". Other programs kept %.2f processors busy on average", r.Others)
	}
	if !r.BF16 {
		b.WriteString(". This processor has no instructions for bfloat16: types of 16 bits save memory traffic here, no arithmetic")
	}
	b.WriteString(".\n\n")
	t := table{texts: 3, header: []string{"program", "version", "settings"}}
	for _, p := range r.Programs {
		if p.Skipped != "" {
			t.add(p.Name, "SKIPPED", p.Skipped)
			continue
		}
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(p.Versions)) {
			versions = append(versions, name+" "+p.Versions[name])
		}
		t.add(p.Name, strings.Join(versions, ", "), strings.Join(p.Notes, "; "))
	}
	b.WriteString(t.String())
}

// comparison has a row for every case, program and type. Ratios are those of Gyre in its best type to the program, repeat by repeat; floors
// stand where the program is at its best.
func (r *Report) comparison(cases []Case) string {
	t := table{texts: 3, header: []string{"work", "program", "type", "tokens/s", "decode tokens/s", "share of bound", "peak GB", "Gyre's speed ÷ its", "floor", "Gyre's memory ÷ its", "floor "}}
	for _, c := range cases {
		title := c.Title
		for _, p := range r.Programs {
			samples := c.Samples[p.Name]
			if len(samples) == 0 {
				continue
			}
			row := []string{title, Base(p.Name), Type(p.Name), Over(samples, Sample.Speed).String(), number(Over(samples, Sample.DecodeSpeed).Median), r.shares(samples),
				number(Over(samples, peak).Median / 1e9), "", "", "", ""}
			if base := Base(p.Name); base != Subject && c.fastest(Subject) != "" {
				speed, memory := Ratio(c.Samples[c.fastest(Subject)], samples, Sample.Speed), Ratio(c.Samples[c.leanest(Subject)], samples, peak)
				row[7], row[9] = speed.String(), number(memory.Median)
				floor := r.FloorOf(c.Name, base)
				if p.Name == c.fastest(base) {
					row[8] = verdict(floor.Speed, speed.Median >= floor.Speed, "≥")
				}
				if p.Name == c.leanest(base) {
					row[10] = verdict(floor.Memory, memory.Median <= floor.Memory, "≤")
				}
			}
			t.add(row...)
			title = ""
		}
	}
	return t.String()
}

// shares of the bound: of the whole, and of first tokens and decoding where they are known.
func (r *Report) shares(samples []Sample) string {
	if r.OnDevice() {
		return ""
	}
	whole := percent(Over(samples, Sample.Share).Median)
	if first := percent(Over(samples, Sample.FirstShare).Median); first != "" {
		whole += fmt.Sprintf(" (%s, %s)", first, percent(Over(samples, Sample.DecodeShare).Median))
	}
	return whole
}

func verdict(floor float64, reached bool, sign string) string {
	switch {
	case floor == 0:
		return ""
	case reached:
		return fmt.Sprintf("%s %g ✓", sign, floor)
	}
	return fmt.Sprintf("%s %g ✗", sign, floor)
}

func (r *Report) turns(c Case) string {
	t := table{texts: 1, header: []string{"program"}}
	for _, p := range r.Programs {
		samples := c.Samples[p.Name]
		if len(samples) == 0 || len(samples[0].TurnSeconds) == 0 {
			continue
		}
		row := []string{p.Name}
		for turn := range samples[0].TurnSeconds {
			if len(t.header) <= turn+1 {
				t.header = append(t.header, fmt.Sprintf("turn %d", turn+1))
			}
			row = append(row, number(Over(samples, func(s Sample) float64 { return s.TurnSeconds[turn] }).Median))
		}
		t.add(append(row, number(Over(samples, func(s Sample) float64 { return s.Seconds }).Median))...)
	}
	t.header = append(t.header, "total")
	return t.String()
}

func (r *Report) analysis(b *strings.Builder) {
	if len(r.Analysis) == 0 {
		return
	}
	t := table{texts: 1, header: []string{"pass", "seconds", "÷ plain update", "at most"}}
	for _, a := range r.Analysis {
		cost, limit := a.Seconds/r.Analysis[0].Seconds, limits[a.Name]
		t.add(a.Name, number(a.Seconds), number(cost), verdict(limit, cost <= limit, "≤"))
	}
	fmt.Fprintf(b, "\n### Gradient analysis\n\nA batch of 48 episodes of 128 tokens and a policy of 3.5 million parameters.\n\n%s", t.String())
}

// Missed lists the floors that were measured and not reached.
func (r *Report) Missed() []string {
	var missed []string
	for _, c := range r.Cases {
		for _, p := range r.Programs {
			base := Base(p.Name)
			samples, floor := c.Samples[p.Name], r.FloorOf(c.Name, base)
			if base == Subject || c.fastest(Subject) == "" || len(samples) == 0 {
				continue
			}
			v := Ratio(c.Samples[c.fastest(Subject)], samples, Sample.Speed).Median
			if p.Name == c.fastest(base) && v < floor.Speed {
				missed = append(missed, fmt.Sprintf("%s: %.2f times the speed of %s, floor %g", c.Name, v, p.Name, floor.Speed))
			}
			v = Ratio(c.Samples[c.leanest(Subject)], samples, peak).Median
			if p.Name == c.leanest(base) && floor.Memory > 0 && v > floor.Memory {
				missed = append(missed, fmt.Sprintf("%s: %.2f times the peak memory of %s, at most %g", c.Name, v, p.Name, floor.Memory))
			}
		}
	}
	for _, a := range r.Analysis {
		if cost, limit := a.Seconds/r.Analysis[0].Seconds, limits[a.Name]; limit > 0 && cost > limit {
			missed = append(missed, fmt.Sprintf("%s: %.2f plain updates, at most %g", a.Name, cost, limit))
		}
	}
	return append(append(missed, r.missedRanks()...), r.missedEnvironments()...)
}

// The marks between which a document holds the tables.
const (
	beginMark = "<!-- bench -->\n"
	endMark   = "<!-- /bench -->\n"
)

// Insert puts the tables between a document's marks. A document without marks is replaced.
func Insert(document, tables string) string {
	before, rest, found := strings.Cut(document, beginMark)
	_, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return tables
	}
	return before + beginMark + tables + endMark + after
}
