package analysis

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"gyre/orchestrate/metrics"
)

// spreads returns mean over groups, minimum and maximum of the bucket's group spreads.
func (r Result) spreads() (mean, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, g := range r.Groups {
		mean += g.Spread / float64(len(r.Groups))
		low, high = math.Min(low, g.Spread), math.Max(high, g.Spread)
	}
	return mean, low, high
}

// Metrics names everything as RAGEN does, under prefix (grad_norm, or grad_norm_prefilter) and bucket. Components that are switched off are
// absent.
func (r Report) Metrics(prefix string) map[string]float64 {
	out := map[string]float64{}
	for _, x := range r.Results {
		p := prefix + "/" + x.Name + "/"
		out[p+"sample_count"], out[p+"sample_pct"] = float64(x.Samples), x.Fraction
		out[p+"reward_std_mean"], out[p+"reward_std_min"], out[p+"reward_std_max"] = x.spreads()
		out[p+"group_rv_count"] = float64(len(x.Groups))
		for name, norm := range x.Norms {
			out[p+name] = norm
			out[p+"per_sample/"+name] = norm / float64(x.Samples)
			out[p+"per_token/"+name] = norm / float64(x.Tokens)
		}
		for name, loss := range x.Losses {
			out[p+"loss/"+name] = loss
		}
	}
	return out
}

// Tables lists every bucket's groups with their spreads.
func (r Report) Tables(prefix string) map[string]metrics.Table {
	out := map[string]metrics.Table{}
	for _, x := range r.Results {
		t := metrics.Table{Columns: []string{"bucket", "group_id", "reward_std"}}
		for _, g := range x.Groups {
			t.Rows = append(t.Rows, []any{x.Name, g.ID, g.Spread})
		}
		out[prefix+"/"+x.Name+"/group_rv_table"] = t
	}
	return out
}

// TopLevel repeats the whole batch's numbers under the actor's names.
func (r Report) TopLevel() map[string]float64 {
	out := map[string]float64{}
	whole := r.Results[len(r.Results)-1]
	for name, norm := range whole.Norms {
		out["actor/grad_norm/"+name] = norm
	}
	for name, loss := range whole.Losses {
		out["actor/loss/"+name] = loss
	}
	return out
}

// Console is the report as a table for people.
func (r Report) Console(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (exact profile)\n", title)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "bucket\tepisodes\tshare\tgroups\tspread\t|task|\t|entropy|\t|kl|\tpolicy loss\t\n")
	cell := func(values map[string]float64, name string) string {
		if v, ok := values[name]; ok {
			return fmt.Sprintf("%.4g", v)
		}
		return "-"
	}
	for _, x := range r.Results {
		mean, _, _ := x.spreads()
		fmt.Fprintf(w, "%s\t%d\t%.1f%%\t%d\t%.3f\t%s\t%s\t%s\t%s\t\n", x.Name, x.Samples, 100*x.Fraction, len(x.Groups), mean,
			cell(x.Norms, Task), cell(x.Norms, Entropy), cell(x.Norms, KL), cell(x.Losses, "policy"))
	}
	w.Flush()
	return b.String()
}
