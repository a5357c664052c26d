package gradients

import (
	"fmt"
	"math"
	"slices"

	"gyre/internal/statistics"
	"gyre/internal/table"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Result is what was measured of one bucket, or of the whole batch. A number that is not defined or was not asked for
// is absent.
type Result struct {
	Bucket
	Tokens int // of the episodes measured

	Samples    int     `metric:"sample_count" doc:"episodes measured; the paper profile may leave some out"`
	Share      float64 `metric:"sample_pct" unit:"0 to 1" doc:"their share of the batch"`
	Mean       float64 `metric:"reward_std_mean" unit:"reward" doc:"mean of the groups' reward standard deviations"`
	Low        float64 `metric:"reward_std_min" unit:"reward" doc:"the smallest of them: buckets of other batches have other ranges"`
	High       float64 `metric:"reward_std_max" unit:"reward" doc:"the largest of them"`
	GroupCount int     `metric:"group_rv_count" doc:"groups"`

	Terms      map[string]*Term    `metric:""`
	Losses     map[string]float64  `metric:"loss/{c}" doc:"the bucket's part of the loss (policy, entropy, kl, total): buckets add up to all"`
	NoInterval string              `metric:"no_interval,omitzero" doc:"text: why the bucket has no interval"`
	Cosines    map[string]*float64 `metric:"cosine/{pair}" unit:"−1 to 1" doc:"of two terms' gradients (task_entropy, task_kl, entropy_kl); negative: they work against each other"`
	Table      metrics.Table       `metric:"group_rv_table" doc:"bucket, group_id, reward_std of every group"`
}

// Term is the gradient of one loss term.
type Term struct {
	Norm      float64  `metric:"{c}" unit:"loss per parameter" doc:"‖G‖, the L2 norm of the term's gradient, before clipping; it grows with the bucket's share and with noise"`
	PerSample float64  `metric:"per_sample/{c}" doc:"‖G‖ / episodes"`
	PerToken  float64  `metric:"per_token/{c}" doc:"‖G‖ / sampled tokens"`
	GroupNorm *float64 `metric:"group_norm_mean/{c}" doc:"mean of ‖g_i‖; much larger than ‖G‖/n means that groups disagree"`
	Signal    *Signal  `metric:""`
	CosineAll *float64 `metric:"cosine_all/{c}" unit:"−1 to 1" doc:"of the bucket's gradient and that of all: how much the bucket steers the update"`

	vector     vector
	layers     []float64 // the part of the norm that falls on each of the report's layers
	groupNorms []float64
	groups     []vector  // of the task
	products   []float64 // their inner products with the sum
}

// Report holds the buckets, and the whole batch under the name "all".
type Report struct {
	Options Options
	Plan    experiment.GradientPlan
	Terms   []string  // in the order of reports
	Results []*Result // buckets in their order, and last the whole batch
	layers  []scope

	Buckets map[string]*Result `metric:"{bucket}"`
	Proxy   *Proxy             `metric:""`
	Groups  metrics.Table      `metric:"group_table" doc:"bucket, group_id, reward_std, episodes, and ‖g_i‖ of every term"`
	Layers  metrics.Table      `metric:"block_table" doc:"bucket, layer, and the part of every term's norm that falls on it: squares add up to ‖G‖²"`
	Apart   [][2]string        // buckets whose task gradients work against each other beyond noise
	Task    []Pull             // of every group, in the order of All().Groups; nil unless Options.Pulls asks for it
	Cosines metrics.Table      `metric:"cosine_table" doc:"between buckets: cosine as measured, too close to 0 because noise lengthens both gradients, and cosine_unbiased"`
}

// newResult counts those rows of a bucket that are measured, in ascending order.
func newResult(bucket Bucket, b *train.Batch, rows []int) *Result {
	r := &Result{Bucket: bucket, Samples: len(rows), Share: float64(len(rows)) / float64(b.Len()),
		Mean: bucket.MeanStd(), Low: math.Inf(1), High: math.Inf(-1), GroupCount: len(bucket.Groups),
		Terms: map[string]*Term{}, Losses: map[string]float64{}, Cosines: map[string]*float64{}}
	for _, g := range bucket.Groups {
		for _, row := range g.Rows {
			if _, measured := slices.BinarySearch(rows, row); measured {
				r.Tokens += b.Sequences[row].Sampled()
				r.Low, r.High = min(r.Low, g.Std), max(r.High, g.Std)
			}
		}
	}
	return r
}

// put records the norm and the loss of a term. The task's loss is called policy, as in RAGEN.
func (r *Result) put(term string, norm, loss float64) *Term {
	t := &Term{Norm: norm, PerSample: norm / float64(r.Samples), PerToken: norm / float64(r.Tokens)}
	r.Terms[term] = t
	if term == torch.Task {
		term = "policy"
	}
	r.Losses[term] = loss
	r.Losses["total"] += loss
	return t
}

// add records the sums of some columns: the norms, those by layer, the cosines between these columns, and what of them
// is signal.
func (r *Result) add(s *sum, columns []string, report *Report) (err error) {
	for c, name := range columns {
		t := r.put(name, s.gram.norm(c, everything), s.losses[c])
		for _, layer := range report.layers {
			t.layers = append(t.layers, s.gram.norm(c, layer))
		}
		for other := c + 1; other < len(columns); other++ {
			r.Cosines[name+"_"+columns[other]] = optional(s.gram.cosine(c, other, everything))
		}
		t.vector = s.vectors[c]
		if name == torch.Task {
			t.groups = s.column(c)
		}
		if err := t.separate(s.column(c), report.Options.Confidence); err != nil {
			return err
		}
	}
	return nil
}

// separate splits the squared norm of a gradient into signal and noise.
func (t *Term) separate(groups []vector, confidence float64) error {
	var squares, products []float64
	mean := 0.0
	for _, g := range groups {
		own, err := g.dot(g)
		if err != nil {
			return err
		}
		product, err := t.vector.dot(g)
		if err != nil {
			return err
		}
		// Only the product with the other groups is taken from sketches.
		squares, products = append(squares, g.square), append(products, product+g.square-own)
		norm := math.Sqrt(g.square)
		t.groupNorms = append(t.groupNorms, norm)
		mean += norm / float64(len(groups))
	}
	t.GroupNorm, t.products = &mean, products
	t.Signal = Separate(t.vector.square, squares, products, confidence)
	return nil
}

// compare takes the cosines that need gradients of different buckets, or of columns that were measured one after the
// other.
func (r *Report) compare() (err error) {
	last := len(r.Results) - 1
	for i, x := range r.Results {
		for c, name := range r.Terms {
			own := x.Terms[name]
			for _, other := range r.Terms[c+1:] {
				pair := name + "_" + other
				if _, taken := x.Cosines[pair]; taken {
					continue
				}
				if x.Cosines[pair], err = own.vector.cosine(x.Terms[other].vector); err != nil {
					return err
				}
			}
			if i == last {
				continue
			}
			if own.CosineAll, err = own.vector.cosine(r.All().Terms[name].vector); err != nil {
				return err
			}
		}
		for j := i + 1; j < last; j++ {
			if err := r.pair(x, r.Results[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// pair adds the cosines of two buckets to the table. Buckets are independent draws: their inner product has no bias,
// only the norms have. The cosine over the norms without noise may lie outside [-1, 1]; it is NaN unless both signals
// are positive.
func (r *Report) pair(x, y *Result) error {
	for _, name := range r.Terms {
		a, b := x.Terms[name], y.Terms[name]
		product, err := a.vector.dot(b.vector)
		if err != nil {
			return err
		}
		cosine, ok := statistics.Cosine(product, a.vector.square, b.vector.square)
		if !ok {
			continue
		}
		unbiased := math.NaN()
		if a.Signal != nil && b.Signal != nil {
			if c, ok := statistics.Cosine(product, a.Signal.Square, b.Signal.Square); ok {
				unbiased = c
			}
		}
		r.Cosines.Columns = []string{"bucket", "other", "component", "cosine", "cosine_unbiased"}
		r.Cosines.Rows = append(r.Cosines.Rows, []any{x.Name, y.Name, name, cosine, unbiased})
	}
	return nil
}

// tabulate makes the tables of groups and layers.
func (r *Report) tabulate() {
	r.Buckets, r.Groups.Columns = map[string]*Result{}, []string{"bucket", "group_id", "reward_std", "episodes"}
	if r.Options.Profile == Exact {
		r.Groups.Columns = append(r.Groups.Columns, r.Terms...)
	}
	if r.layers != nil {
		r.Layers.Columns = append([]string{"bucket", "block"}, r.Terms...)
	}
	for _, x := range r.Results {
		r.Buckets[x.Name], x.NoInterval, x.Table.Columns = x, x.withoutInterval(r.Options), r.Groups.Columns[:3:3]
		for i, g := range x.Bucket.Groups {
			row := []any{x.Name, g.ID, g.Std, len(g.Rows)}
			x.Table.Rows = append(x.Table.Rows, row[:3:3])
			if x.Name == "all" {
				continue
			}
			for _, name := range r.Groups.Columns[4:] {
				row = append(row, x.Terms[name].groupNorms[i])
			}
			r.Groups.Rows = append(r.Groups.Rows, row)
		}
		for i, layer := range r.layers {
			row := []any{x.Name, layer.name}
			for _, name := range r.Terms {
				row = append(row, x.Terms[name].layers[i])
			}
			r.Layers.Rows = append(r.Layers.Rows, row)
		}
	}
}

// All is the result of the whole batch.
func (r *Report) All() *Result { return r.Results[len(r.Results)-1] }

// withoutInterval is why a bucket's signal has no interval, "" if it has one.
func (r *Result) withoutInterval(o Options) string {
	switch n := len(r.Bucket.Groups); {
	case o.Profile == Paper:
		return "the paper profile has no estimate of the signal"
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
	for _, name := range r.Terms {
		t.Columns = append(t.Columns, table.Column{Name: "|" + name + "|"})
	}
	for _, name := range []string{"policy loss", "task signal", "snr"} {
		t.Columns = append(t.Columns, table.Column{Name: name})
	}
	notes := ""
	for _, x := range r.Results {
		row := []any{x.Name, x.Samples, table.Percent(x.Share), x.GroupCount, fmt.Sprintf("%.3g–%.3g", x.Low, x.High)}
		for _, name := range r.Terms {
			row = append(row, x.Terms[name].Norm)
		}
		row = append(row, x.Losses["policy"])
		if task := x.Terms[torch.Task]; task != nil && task.Signal != nil {
			s := task.Signal
			text := fmt.Sprintf("%.3g", root(s.Square))
			if s.Low != nil {
				text += fmt.Sprintf(" [%.3g, %.3g]", root(*s.Low), root(*s.High))
			}
			row = append(row, text)
			if s.Ratio != nil {
				row = append(row, *s.Ratio)
			}
		}
		t.Add(row...)
		if x.NoInterval != "" && r.Options.Profile == Exact {
			notes += fmt.Sprintf("%s has no interval: %s\n", x.Name, x.NoInterval)
		}
	}
	return fmt.Sprintf("%s (%s)\n%s%s", title, r.Options.describe(), t.Text(table.UnknownWidth), notes)
}
