package analysis

import (
	"math"

	"gyre/orchestrate/metrics"
)

// Metrics names everything that is one number per bucket, as RAGEN does where it has the metric, under a prefix (grad_norm, or
// grad_norm_prefilter) and the bucket. What is not defined, or was switched off, is absent.
func (r Report) Metrics(prefix string) map[string]float64 {
	out := map[string]float64{}
	for _, x := range r.Results {
		p := prefix + "/" + x.Name + "/"
		out[p+"sample_count"], out[p+"sample_pct"] = float64(x.Samples), x.Fraction
		out[p+"reward_std_mean"], out[p+"reward_std_min"], out[p+"reward_std_max"] = x.Spread(), x.Low, x.High
		out[p+"group_rv_count"] = float64(len(x.Groups))
		for name, norm := range x.Norms {
			out[p+name] = norm
			out[p+"per_sample/"+name] = norm / float64(x.Samples)
			out[p+"per_token/"+name] = norm / float64(x.Tokens)
		}
		for name, loss := range x.Losses {
			out[p+"loss/"+name] = loss
		}
		for name, s := range x.Signals {
			out[p+"signal_sq/"+name], out[p+"noise_sq/"+name] = s.Square, s.Noise
			put(out, p+"signal_sq_low/"+name, s.Low)
			put(out, p+"signal_sq_high/"+name, s.High)
			put(out, p+"snr/"+name, s.Ratio())
			norm, low, high := s.PerGroup(len(x.Groups))
			out[p+"signal_per_group/"+name] = norm
			put(out, p+"signal_per_group_low/"+name, low)
			put(out, p+"signal_per_group_high/"+name, high)
		}
		for name, c := range x.Cosines {
			out[p+"cosine/"+name] = c
		}
		for name, c := range x.Whole {
			out[p+"cosine_all/"+name] = c
		}
		for _, norms := range x.GroupNorms {
			for name, norm := range norms {
				out[p+"group_norm_mean/"+name] += norm / float64(len(x.GroupNorms))
			}
		}
	}
	return out
}

// Notes says of each bucket without an interval why it has none.
func (r Report) Notes(prefix string) map[string]string {
	out := map[string]string{}
	for _, x := range r.Results {
		if why := x.withoutInterval(r.Options); why != "" {
			out[prefix+"/"+x.Name+"/no_interval"] = why
		}
	}
	return out
}

// withoutInterval is why a bucket's signal has no interval, "" if it has one.
func (r Result) withoutInterval(o Options) string {
	switch n := len(r.Groups); {
	case o.Profile == Paper:
		return "the paper profile has no estimate of the signal"
	case !o.Statistics:
		return "analysis.statistics = false"
	case n == 1:
		return "1 group: nothing tells signal from noise"
	case n == 2:
		return "2 groups: an interval takes three"
	}
	return ""
}

func put(out map[string]float64, name string, v float64) {
	if !math.IsNaN(v) {
		out[name] = v
	}
}

// Tables lists what is more than one number per bucket: every bucket's groups with their spreads (RAGEN's table), and for the whole
// batch the groups' gradient norms, the buckets' norms per block of the model, and the cosines between buckets.
func (r Report) Tables(prefix string) map[string]metrics.Table {
	out := map[string]metrics.Table{}
	components := r.components()
	groups := metrics.Table{Columns: append([]string{"bucket", "group_id", "reward_std", "episodes"}, r.groupComponents()...)}
	blocks := metrics.Table{Columns: append([]string{"bucket", "block"}, components...)}
	for _, x := range r.Results {
		spreads := metrics.Table{Columns: []string{"bucket", "group_id", "reward_std"}}
		for i, g := range x.Groups {
			spreads.Rows = append(spreads.Rows, []any{x.Name, g.ID, g.Spread})
			if x.Name == "all" {
				continue
			}
			row := []any{x.Name, g.ID, g.Spread, len(g.Samples)}
			for _, name := range r.groupComponents() {
				row = append(row, x.GroupNorms[i][name])
			}
			groups.Rows = append(groups.Rows, row)
		}
		for _, b := range x.Blocks {
			row := []any{x.Name, b.Name}
			for _, name := range components {
				row = append(row, b.Norms[name])
			}
			blocks.Rows = append(blocks.Rows, row)
		}
		out[prefix+"/"+x.Name+"/group_rv_table"] = spreads
	}
	out[prefix+"/group_table"] = groups
	if len(blocks.Rows) > 0 {
		out[prefix+"/block_table"] = blocks
	}
	if len(r.Pairs) > 0 {
		cosines := metrics.Table{Columns: []string{"bucket", "other", "component", "cosine", "cosine_unbiased"}}
		for _, p := range r.Pairs {
			cosines.Rows = append(cosines.Rows, []any{p.First, p.Second, p.Component, p.Cosine, p.Unbiased})
		}
		out[prefix+"/cosine_table"] = cosines
	}
	return out
}

// components that were measured, in the order of reports.
func (r Report) components() []string {
	var out []string
	for _, name := range []string{Task, Entropy, KL} {
		if _, ok := r.whole().Norms[name]; ok {
			out = append(out, name)
		}
	}
	return out
}

// groupComponents are those with a norm per group.
func (r Report) groupComponents() []string {
	if len(r.whole().GroupNorms) == 0 {
		return nil
	}
	return r.components()
}

// TopLevel repeats the whole batch's numbers under the actor's names.
func (r Report) TopLevel() map[string]float64 {
	out := map[string]float64{}
	for name, norm := range r.whole().Norms {
		out["actor/grad_norm/"+name] = norm
	}
	for name, loss := range r.whole().Losses {
		out["actor/loss/"+name] = loss
	}
	return out
}
