package gradients

import (
	"fmt"
	"math"
	"slices"

	"gyre/internal/table"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Result is what was measured of one bucket, or of the whole batch. Maps are by loss term; a number that is not
// defined or was not asked for is absent.
type Result struct {
	Bucket
	Tokens int // of the episodes measured

	Samples    int     `metric:"sample_count" doc:"episodes measured; the paper profile may leave some out"`
	Share      float64 `metric:"sample_pct" unit:"0 to 1" doc:"their share of the batch"`
	Mean       float64 `metric:"reward_std_mean" unit:"reward" doc:"mean of the groups' reward standard deviations"`
	Low        float64 `metric:"reward_std_min" unit:"reward" doc:"the smallest of them: buckets of other batches have other ranges"`
	High       float64 `metric:"reward_std_max" unit:"reward" doc:"the largest of them"`
	GroupCount int     `metric:"group_rv_count" doc:"groups"`

	Norms     map[string]float64 `metric:"{c}" unit:"loss per parameter" doc:"‖G‖, the L2 norm of the term's gradient, before clipping; it grows with the bucket's share and with noise"`
	PerSample map[string]float64 `metric:"per_sample/{c}" doc:"‖G‖ / episodes"`
	PerToken  map[string]float64 `metric:"per_token/{c}" doc:"‖G‖ / sampled tokens"`
	Losses    map[string]float64 `metric:"loss/{c}" doc:"the bucket's part of the loss (policy, entropy, kl, total): buckets add up to all"`

	GroupNorm  map[string]float64 `metric:"group_norm_mean/{c}" doc:"mean of ‖g_i‖; much larger than ‖G‖/n means that groups disagree"`
	Signal     map[string]float64 `metric:"signal_sq/{c}" unit:"squared norm" doc:"n/(n−1)·(‖G‖² − Σ‖g_i‖²), a U-statistic: estimates ‖E G‖² without bias; around 0 (also below) ‖G‖ is noise"`
	SignalLow  map[string]float64 `metric:"signal_sq_low/{c}" unit:"squared norm" doc:"lower end of its confidence interval (analysis.confidence), from three groups on; below 0 no gradient is proven"`
	SignalHigh map[string]float64 `metric:"signal_sq_high/{c}" unit:"squared norm" doc:"upper end"`
	Noise      map[string]float64 `metric:"noise_sq/{c}" unit:"squared norm" doc:"‖G‖² − signal_sq = n·tr Ĉ, with Ĉ the unbiased covariance of the g_i"`
	Ratio      map[string]float64 `metric:"snr/{c}" doc:"signal_sq / noise_sq: above 1 the direction is mostly signal; it grows with n"`
	PerGroup   map[string]float64 `metric:"signal_per_group/{c}" doc:"√signal_sq / n, 0 where the estimate is negative: what one group contributes to the signal; compares buckets of different size"`
	GroupLow   map[string]float64 `metric:"signal_per_group_low/{c}" doc:"lower end of its interval"`
	GroupHigh  map[string]float64 `metric:"signal_per_group_high/{c}" doc:"upper end"`
	NoInterval string             `metric:"no_interval,omitzero" doc:"text: why the bucket has no interval"`

	Cosines    map[string]float64 `metric:"cosine/{pair}" unit:"−1 to 1" doc:"of two terms' gradients (task_entropy, task_kl, entropy_kl); negative: they work against each other"`
	CosinesAll map[string]float64 `metric:"cosine_all/{c}" unit:"−1 to 1" doc:"of the bucket's gradient and that of all: how much the bucket steers the update"`
	Table      metrics.Table      `metric:"group_rv_table" doc:"bucket, group_id, reward_std of every group"`

	kept       map[string]kept      // by term: the bucket's gradients
	groupNorms []map[string]float64 // in the order of Groups
	layers     map[string][]float64 // by term, the part of the norm that falls on each of the report's layers
}

// Pair compares the gradients of two buckets.
type Pair struct {
	First, Second, Term string
	Cosine              float64
	// Unbiased divides by the norms without noise; NaN unless both signals are positive. It may lie outside [-1, 1].
	Unbiased float64
}

// Report holds the buckets, and the whole batch under the name "all".
type Report struct {
	Options Options
	Plan    Plan
	Terms   []string  // in the order of reports
	Results []*Result // buckets in their order, and last the whole batch
	Pairs   []Pair
	layers  []scope

	Buckets map[string]*Result `metric:"{bucket}"`
	Groups  metrics.Table      `metric:"group_table" doc:"bucket, group_id, reward_std, episodes, and ‖g_i‖ of every term"`
	Layers  metrics.Table      `metric:"block_table" doc:"bucket, layer, and the part of every term's norm that falls on it: squares add up to ‖G‖²"`
	Cosines metrics.Table      `metric:"cosine_table" doc:"between buckets: cosine as measured, too close to 0 because noise lengthens both gradients, and cosine_unbiased"`
}

// newResult counts a bucket's episodes.
func newResult(bucket Bucket, b *train.Batch) *Result {
	r := &Result{Bucket: bucket, layers: map[string][]float64{}}
	r.count(b, func(int) bool { return true })
	return r
}

// count describes the bucket's rows that are measured.
func (r *Result) count(b *train.Batch, measured func(row int) bool) {
	r.Samples, r.Tokens, r.Low, r.High = 0, 0, math.Inf(1), math.Inf(-1)
	for _, g := range r.Bucket.Groups {
		for _, row := range g.Rows {
			if measured(row) {
				r.Samples++
				r.Tokens += b.Sequences[row].Sampled()
				r.Low, r.High = min(r.Low, g.Std), max(r.High, g.Std)
			}
		}
	}
	r.Share = float64(r.Samples) / float64(b.Len())
	r.Mean, r.GroupCount = r.MeanStd(), len(r.Bucket.Groups)
}

// put notes a number that is defined.
func put(m *map[string]float64, name string, v float64) {
	if *m == nil {
		*m = map[string]float64{}
	}
	if !math.IsNaN(v) {
		(*m)[name] = v
	}
}

// lossName is what a term's loss is called: that of the task policy, as RAGEN does.
func lossName(term string) string {
	if term == torch.Task {
		return "policy"
	}
	return term
}

func (r *Result) addLoss(term string, loss float64) {
	put(&r.Losses, lossName(term), r.Losses[lossName(term)]+loss)
}

func (r *Result) addGroups(term string, squares []float64) {
	if r.groupNorms == nil {
		r.groupNorms = make([]map[string]float64, len(squares))
	}
	mean := 0.0
	for i, square := range squares {
		put(&r.groupNorms[i], term, math.Sqrt(square))
		mean += math.Sqrt(square) / float64(len(squares))
	}
	put(&r.GroupNorm, term, mean)
}

func (r *Result) addSignal(term string, s Signal) {
	put(&r.Signal, term, s.Square)
	put(&r.Noise, term, s.Noise)
	put(&r.SignalLow, term, s.Low)
	put(&r.SignalHigh, term, s.High)
	put(&r.Ratio, term, s.Ratio())
	norm, low, high := s.PerGroup(len(r.Bucket.Groups))
	put(&r.PerGroup, term, norm)
	put(&r.GroupLow, term, low)
	put(&r.GroupHigh, term, high)
}

// finish derives what follows from the results, and makes the tables.
func (r *Report) finish(results []*Result) {
	r.Results, r.Buckets = results, map[string]*Result{}
	r.Groups.Columns = []string{"bucket", "group_id", "reward_std", "episodes"}
	if results[len(results)-1].groupNorms != nil {
		r.Groups.Columns = append(r.Groups.Columns, r.Terms...)
	}
	if r.layers != nil {
		r.Layers.Columns = append([]string{"bucket", "block"}, r.Terms...)
	}
	for _, x := range results {
		r.Buckets[x.Name] = x
		x.NoInterval = x.withoutInterval(r.Options)
		for _, name := range r.Terms {
			put(&x.PerSample, name, x.Norms[name]/float64(x.Samples))
			put(&x.PerToken, name, x.Norms[name]/float64(x.Tokens))
			put(&x.Losses, "total", x.Losses["total"]+x.Losses[lossName(name)])
		}
		r.tabulate(x)
	}
	for _, p := range r.Pairs {
		r.Cosines.Columns = []string{"bucket", "other", "component", "cosine", "cosine_unbiased"}
		r.Cosines.Rows = append(r.Cosines.Rows, []any{p.First, p.Second, p.Term, p.Cosine, p.Unbiased})
	}
}

// tabulate adds a result's groups and layers to the tables.
func (r *Report) tabulate(x *Result) {
	x.Table.Columns = r.Groups.Columns[:3:3]
	for i, g := range x.Bucket.Groups {
		x.Table.Rows = append(x.Table.Rows, []any{x.Name, g.ID, g.Std})
		if x.Name == "all" {
			continue
		}
		row := []any{x.Name, g.ID, g.Std, len(g.Rows)}
		for _, name := range r.Groups.Columns[4:] {
			row = append(row, x.groupNorms[i][name])
		}
		r.Groups.Rows = append(r.Groups.Rows, row)
	}
	for i, layer := range r.layers {
		row := []any{x.Name, layer.name}
		for _, name := range r.Terms {
			row = append(row, x.layers[name][i])
		}
		r.Layers.Rows = append(r.Layers.Rows, row)
	}
}

// All is the result of the whole batch.
func (r *Report) All() *Result { return r.Results[len(r.Results)-1] }

// withoutInterval is why a bucket's signal has no interval, "" if it has one.
func (r *Result) withoutInterval(o Options) string {
	switch n := len(r.Bucket.Groups); {
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

// Console is the report as a table for people.
func (r *Report) Console(title string) string {
	t := table.New("bucket", "episodes", "share", "groups", "reward std")
	for _, name := range append(slices.Clone(r.Terms), "policy loss", "task signal", "snr") {
		if slices.Contains(r.Terms, name) {
			name = "|" + name + "|"
		}
		t.Columns = append(t.Columns, table.Column{Name: name})
	}
	notes := ""
	for _, x := range r.Results {
		row := []any{x.Name, x.Samples, table.Percent(x.Share), x.GroupCount, fmt.Sprintf("%.3g–%.3g", x.Low, x.High)}
		for _, name := range r.Terms {
			row = append(row, x.Norms[name])
		}
		signal, ratio := x.signal()
		t.Add(append(row, x.Losses["policy"], signal, ratio)...)
		if x.NoInterval != "" && r.Options.Profile == Exact && r.Options.Statistics {
			notes += fmt.Sprintf("%s has no interval: %s\n", x.Name, x.NoInterval)
		}
	}
	return fmt.Sprintf("%s (%s)\n%s%s", title, r.Options.describe(), t.Text(table.UnknownWidth), notes)
}

// signal is the task gradient's norm without noise with its interval, and its signal-to-noise ratio; nil where there
// is none.
func (r *Result) signal() (norm, ratio any) {
	square, ok := r.Signal[torch.Task]
	if !ok {
		return nil, nil
	}
	root := func(square float64) float64 { return math.Sqrt(max(square, 0)) }
	text := fmt.Sprintf("%.3g", root(square))
	if low, ok := r.SignalLow[torch.Task]; ok {
		text += fmt.Sprintf(" [%.3g, %.3g]", root(low), root(r.SignalHigh[torch.Task]))
	}
	v, ok := r.Ratio[torch.Task]
	return text, null(v, ok)
}
