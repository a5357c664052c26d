package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gyre/internal/table"
	"gyre/scripts/bench/work"
)

// sections in the order of the report, by operation.
var sections = []struct{ op, title, explanation string }{
	{work.OpGenerate, "Generation", "Prompts of 128 random tokens, 64 new ones each, temperature 1, no end of " +
		"sequence. Tokens/s are new tokens, prompts included in the time."},
	{work.OpRewrite, "Rewriting", "Word problems in chats that ask to write them down again, 64 new tokens at " +
		"temperature 0, with speculation and without."},
	{work.OpRollout, "Multi-turn rollout", "Sokoban episodes of growing history, replies of 32 tokens. Tokens/s are " +
		"reply tokens."},
	{work.OpServe, "Serving", "Clients ask over HTTP, each for 64 tokens after 128, twice, as a stream. Tokens/s are " +
		"new tokens of all clients, and peaks those of the clients' process."},
	{work.OpLogprobs, "Log-probs", "One forward pass over four sequences of 256 tokens, log-probs of all of them."},
	{work.OpUpdate, "Update", "Forward, backward and AdamW of a clipped policy loss. Tokens/s count every token of " +
		"every sequence, shared ones too."},
	{work.OpGRPO, "A GRPO step", "Sampling, reward, advantages, one update; prompts of 128 tokens. Tokens/s are " +
		"sampled tokens over the whole step."},
	{work.OpTrain, "Ranks", "The update of gyre train on 8 sequences of 256 tokens: as many ranks of one thread each " +
		"as there are threads, beside one process of all threads. The peak is that of one of them."},
	{work.OpPass, "Passes", "Forward and backward of gyre train on sequences of 256 tokens, all in one pass through " +
		"layers of SmolLM2-135M's shape."},
	{work.OpWaiting, "Environments that wait", "Steps of gyre train with rollout.staleness = 2 beside those with 0: " +
		"a policy of 13 million parameters, 32 episodes of three turns whose environments a server has. Tokens/s are " +
		"episodes per second."},
	{work.OpEnvironment, "Environments", "Episodes begun, or actions played, per second in one thread, the text of " +
		"the state included."},
}

// Markdown is the report for people.
func (r *Report) Markdown() string {
	var b strings.Builder
	r.head(&b)
	for _, section := range sections {
		var cases []*Case
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
			for _, p := range r.Programs {
				wait := func(part string) float64 {
					return 1000 * Over(c.Samples[p.Name], func(s Sample) float64 { return s.Parts[part] }).Median
				}
				if c.Op == work.OpServe && len(c.Samples[p.Name]) > 0 {
					fmt.Fprintf(&b, "\n%s, %s: %.0f ms to the first token, %.1f ms from token to token (medians).\n",
						c.Title, p.Name, wait("first token"), wait("between tokens"))
				}
			}
			waits := func(program string) string {
				return percent(Over(c.Samples[program], func(s Sample) float64 {
					return s.Parts["waiting"] / s.Seconds
				}))
			}
			if share := waits(Subject); share != "" && c.Op == work.OpTrain {
				fmt.Fprintf(&b, "\nA rank waits for others for %s of a step with %s.\n", share, c.Title)
			}
			if share := waits(work.Synchronous); share != "" {
				fmt.Fprintf(&b, "\nA synchronous step waits for environments for %s of its time with %s.\n", share,
					c.Title)
			}
			for _, name := range slices.Sorted(maps.Keys(c.Failures)) {
				fmt.Fprintf(&b, "\n%s failed at %s: %s\n", name, c.Title, c.Failures[name])
			}
		}
	}
	return b.String()
}

func (r *Report) head(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d threads, %s. Model: %s.\n\n", r.CPU, r.Threads, r.Date, r.Model)
	if r.OnDevice() {
		fmt.Fprintf(b, "Models compute on %s; the peaks that follow and the peaks of memory are the CPU's. Nothing is "+
			"required there.\n\n", r.Device)
	}
	fmt.Fprintf(b, "Measured with the work: memory is read at %.1f GB/s, matrix products reach %.0f GFLOP/s",
		r.Machine.Bandwidth/1e9,
		r.Machine.FLOPS/1e9)
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
		b.WriteString(". This processor has no instructions for bfloat16: types of 16 bits save memory traffic here, " +
			"no arithmetic")
	}
	b.WriteString(".\n\n")
	t := table.New("program", "version", "settings")
	for _, p := range r.Programs {
		if p.Skipped != "" {
			t.Add(p.Name, "SKIPPED", p.Skipped)
			continue
		}
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(p.Versions)) {
			versions = append(versions, name+" "+p.Versions[name])
		}
		t.Add(p.Name, strings.Join(versions, ", "), strings.Join(p.Notes, "; "))
	}
	b.WriteString(t.Markdown())
}

// comparison has a row for every case, program and type. Ratios are those of Gyre in its best type to the program,
// repeat by repeat; floors stand where the program is at its best.
func (r *Report) comparison(cases []*Case) string {
	t := table.New("work", "program", "type", "tokens/s", "decode tokens/s", "share of bound", "attainable", "peak GB",
		"Gyre's speed ÷ its", "required", "Gyre's memory ÷ its", "required")
	for _, c := range cases {
		title := c.Title
		for _, p := range r.Programs {
			samples := c.Samples[p.Name]
			if len(samples) == 0 {
				continue
			}
			base, dtype := Split(p.Name)
			share, attainable := "", ""
			if !r.OnDevice() {
				share, attainable = shares(samples), percent(Over(samples, Sample.attainable))
			}
			row := []any{title, base, dtype, Over(samples, Sample.Speed),
				number(Over(samples, Sample.DecodeSpeed).Median), share, attainable,
				number(Over(samples, Sample.peak).Median / 1e9), "", "", "", ""}
			if s, ok := r.beside(c, p.Name); ok {
				row[8], row[9] = s.speed, mark("≥", s.floor.Speed, s.fast())
				row[10], row[11] = number(s.memory.Median), mark("≤", s.floor.Memory, s.lean())
			}
			t.Add(row...)
			title = ""
		}
	}
	return t.Markdown()
}

// standing is how Gyre in its best type stands beside an entry of another program.
type standing struct {
	speed, memory Extent // ratios
	floor         work.Floor
}

// beside compares Gyre with an entry of another program; false where there is nothing to compare. Floors are asked
// beside the program's best types alone, and not on devices.
func (r *Report) beside(c *Case, entry string) (standing, bool) {
	base, _ := Split(entry)
	if base == Subject || c.fastest(Subject) == "" || len(c.Samples[entry]) == 0 {
		return standing{}, false
	}
	s := standing{speed: Ratio(c.Samples[c.fastest(Subject)], c.Samples[entry], Sample.Speed),
		memory: Ratio(c.Samples[c.leanest(Subject)], c.Samples[entry], Sample.peak)}
	asked := c.Peers[base]
	if entry == c.fastest(base) && !r.OnDevice() {
		if s.floor.Speed = asked.Speed; r.BF16 && asked.HalfSpeed > 0 {
			s.floor.Speed = asked.HalfSpeed
		}
	}
	if entry == c.leanest(base) && !r.OnDevice() {
		s.floor.Memory = asked.Memory
	}
	return s, true
}

func (s standing) fast() bool { return s.floor.Speed == 0 || s.speed.Median >= s.floor.Speed }
func (s standing) lean() bool { return s.floor.Memory == 0 || s.memory.Median <= s.floor.Memory }

// mark shows a floor and whether it is kept, "" where nothing is asked.
func mark(sign string, floor float64, kept bool) string {
	if floor == 0 {
		return ""
	}
	held := "✗"
	if kept {
		held = "✓"
	}
	return fmt.Sprintf("%s %g %s", sign, floor, held)
}

// shares of the bound: of the whole, and of first tokens and decoding where they are known.
func shares(samples []Sample) string {
	whole, first, decode := percent(Over(samples, Sample.share)), percent(Over(samples, Sample.first)),
		percent(Over(samples, Sample.decode))
	if first == "" {
		return whole
	}
	return fmt.Sprintf("%s (%s, %s)", whole, first, decode)
}

func (r *Report) turns(c *Case) string {
	if c.Op != work.OpRollout {
		return ""
	}
	header := []string{"program"}
	for turn := range c.Turns {
		header = append(header, fmt.Sprintf("turn %d", turn+1))
	}
	t := table.New(append(header, "total")...)
	for _, p := range r.Programs {
		samples := c.Samples[p.Name]
		if len(samples) == 0 || len(samples[0].TurnSeconds) < c.Turns {
			continue
		}
		row := []any{p.Name}
		for turn := range c.Turns {
			row = append(row, number(Over(samples, func(s Sample) float64 { return s.TurnSeconds[turn] }).Median))
		}
		t.Add(append(row, number(Over(samples, func(s Sample) float64 { return s.Seconds }).Median))...)
	}
	return t.Markdown()
}

// Missed lists the floors that were measured and not reached.
func (r *Report) Missed() []string {
	var missed []string
	for _, c := range r.Cases {
		for _, p := range r.Programs {
			s, ok := r.beside(c, p.Name)
			if ok && !s.fast() {
				missed = append(missed, fmt.Sprintf("%s: %.2f times the speed of %s, required %g", c.Name, s.speed.Median,
					p.Name, s.floor.Speed))
			}
			if ok && !s.lean() {
				missed = append(missed, fmt.Sprintf("%s: %.2f times the peak memory of %s, at most %g", c.Name,
					s.memory.Median, p.Name, s.floor.Memory))
			}
		}
	}
	return missed
}

// number has three digits that matter, and is empty for what was not measured.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || v == 0:
		return ""
	case math.Abs(v) >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case math.Abs(v) < 0.01:
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func percent(e Extent) string {
	if math.IsNaN(e.Median) {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*e.Median)
}

func (e Extent) String() string {
	switch {
	case math.IsNaN(e.Median):
		return ""
	case number(e.Min) == number(e.Max):
		return number(e.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", number(e.Median), number(e.Min), number(e.Max))
}
