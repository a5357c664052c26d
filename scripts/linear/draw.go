package main

import (
	"fmt"

	"gyre/internal/figure"
	"gyre/orchestrate/run/rundir"
)

// row is what a step took: a pass forward for log-probs, and one forward and backward.
type row struct {
	dtype                          string
	layers                         int // 0: the pass grows, not the model
	tokens, logprobs, update, peak float64
}

// rowsOf are the steps of a run but for its first. Of steps of one size the fastest counts, which others on the machine
// disturbed least.
func rowsOf(r *rundir.Run, dtype string, layers int) (rows []row) {
	for _, record := range r.Records {
		number := func(key string) float64 { v, _ := rundir.Number(record, key); return v }
		if record.Step < 2 {
			continue
		}
		x := row{dtype, layers, number("perf/total_num_tokens"), number("timing_s/old_log_prob"),
			number("timing_s/update_actor") - number("timing_s/optimizer"), number("perf/peak_rss_gib")}
		if n := len(rows); n > 0 && rows[n-1].tokens == x.tokens {
			last := &rows[n-1]
			last.logprobs, last.update, last.peak = min(last.logprobs, x.logprobs), min(last.update, x.update), x.peak
			continue
		}
		rows = append(rows, x)
	}
	return rows
}

func draw(rows []row, out string) error {
	tokens, layers := figure.Axis{Label: "tokens of the pass"}, figure.Axis{Label: "layers", High: 30}
	wide := tokens
	wide.Log = true
	zero := func(label string) figure.Axis { return figure.Axis{Label: label, High: 1e-9} }
	panels := []figure.Panel{
		{Title: fmt.Sprintf("%d layers: time per token", forTokens), X: wide, Y: zero("milliseconds")},
		{Title: fmt.Sprintf("%d layers: peak memory", forTokens), X: tokens, Y: zero("GiB")},
		{Title: fmt.Sprintf("%d tokens: time", forLayers), X: layers, Y: zero("seconds")},
		{Title: fmt.Sprintf("%d tokens: peak memory", forLayers), X: layers, Y: zero("GiB")}}
	for i, dtype := range types {
		update, logprobs := figure.Mark{Label: dtype + ", update", Color: figure.Color(i)},
			figure.Mark{Label: dtype + ", log-probs", Color: figure.Color(i + 2)}
		memory := figure.Mark{Label: dtype, Color: figure.Color(i)}
		for at := range 2 {
			u, l, m := update, logprobs, memory
			for _, x := range rows {
				switch {
				case x.dtype != dtype || (x.layers > 0) != (at == 1):
				case at == 0:
					fmt.Printf("%-8s %2d layers %6.0f tokens: update %7.3f ms per token, log-probs %7.3f, peak %5.2f "+
						"GiB\n", dtype, forTokens, x.tokens, 1e3*x.update/x.tokens, 1e3*x.logprobs/x.tokens, x.peak)
					u.Add(x.tokens, 1e3*x.update/x.tokens)
					l.Add(x.tokens, 1e3*x.logprobs/x.tokens)
					m.Add(x.tokens, x.peak)
				default:
					fmt.Printf("%-8s %2d layers %6.0f tokens: update %7.3f s, log-probs %7.3f, peak %5.2f GiB\n", dtype,
						x.layers, x.tokens, x.update, x.logprobs, x.peak)
					u.Add(float64(x.layers), x.update)
					l.Add(float64(x.layers), x.logprobs)
					m.Add(float64(x.layers), x.peak)
				}
			}
			panels[2*at].Add(u, l)
			panels[2*at+1].Add(m)
		}
	}
	f := figure.Figure{Title: "The cost of a pass", Columns: 2, Panels: panels,
		Caption: fmt.Sprintf("SmolLM2-135M with its first layers alone, random sequences of %d tokens", length)}
	return f.Save(out, 100)
}
