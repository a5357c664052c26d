package analysis

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Result is one bucket's (or the whole batch's) part of the gradient. Maps are by component; a quantity that is not defined or was not
// asked for is absent.
type Result struct {
	Bucket
	Samples, Tokens int     // of the episodes measured: the paper profile may leave some out
	Fraction        float64 // of the batch's episodes
	Low, High       float64 // smallest and largest group spread among the episodes measured

	Norms   map[string]float64 // L2 norm before any clipping (paper profile: the mean over mini-batches)
	Losses  map[string]float64 // policy, entropy, kl, total
	Signals map[string]Signal
	// Cosines between component gradients, by names such as task_kl; Whole with the whole batch's gradient of the same component.
	Cosines, Whole map[string]float64
	GroupNorms     []map[string]float64 // aligned with Groups
	Blocks         []Block
}

// Block is the part of a gradient norm that falls on one block of the model: their squares add up to the squared norm.
type Block struct {
	Name  string // embed_tokens, layers.0, …, norm, lm_head
	Norms map[string]float64
}

// Pair compares the gradients of two buckets.
type Pair struct {
	First, Second, Component string
	Cosine                   float64
	// Unbiased divides by the norms without noise; NaN unless both signals are positive. It may lie outside [-1, 1].
	Unbiased float64
}

// Report holds the buckets in order, and last the whole batch under the name "all".
type Report struct {
	Options    Options
	Plan       Plan
	Components []string // in the order of reports
	Results    []Result
	Pairs      []Pair
}

// whole is the result of all buckets together.
func (r Report) whole() Result { return r.Results[len(r.Results)-1] }

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
	components := r.Components
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

// groupComponents are those with a norm per group.
func (r Report) groupComponents() []string {
	if len(r.whole().GroupNorms) == 0 {
		return nil
	}
	return r.Components
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

// Console is the report as a table for people.
func (r Report) Console(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n", title, r.Options.describe())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "bucket\tepisodes\tshare\tgroups\tspread\t|%s|\tpolicy loss\ttask signal\tsnr\t\n", strings.Join(r.Components, "|\t|"))
	for _, x := range r.Results {
		fmt.Fprintf(w, "%s\t%d\t%.1f%%\t%d\t%.3f\t", x.Name, x.Samples, 100*x.Fraction, len(x.Groups), x.Spread())
		for _, name := range r.Components {
			fmt.Fprintf(w, "%.4g\t", x.Norms[name])
		}
		fmt.Fprintf(w, "%.4g\t%s\t\n", x.Losses["policy"], x.signal())
	}
	w.Flush()
	if r.Options.Profile == Exact && r.Options.Statistics {
		for _, x := range r.Results {
			if why := x.withoutInterval(r.Options); why != "" {
				fmt.Fprintf(&b, "%s has no interval: %s\n", x.Name, why)
			}
		}
	}
	return b.String()
}

// signal is the task gradient's norm without noise with its interval, and its signal-to-noise ratio.
func (r Result) signal() string {
	s, ok := r.Signals[torch.Task]
	if !ok {
		return "-\t-"
	}
	root := func(square float64) float64 { return math.Sqrt(math.Max(square, 0)) }
	text := fmt.Sprintf("%.3g", root(s.Square))
	if !math.IsNaN(s.Low) {
		text += fmt.Sprintf(" [%.3g, %.3g]", root(s.Low), root(s.High))
	}
	return text + fmt.Sprintf("\t%.2g", s.Ratio())
}

// describe says by which procedure the numbers were made.
func (o Options) describe() string {
	if o.Profile == Paper {
		return fmt.Sprintf("paper profile: mean norm of mini-batches of %d, micro-batches of %d, ranks %d", o.MiniBatch, o.MicroBatch, o.Ranks)
	}
	if !o.Statistics {
		return "exact profile"
	}
	return fmt.Sprintf("exact profile, %g%% intervals", 100*o.Confidence)
}
