package gradients

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// fixture is a tiny policy, episodes of different length in groups of different size, and a loss of four columns: two
// task terms with advantages of their own, of which one is the other's double, one that is neither, and the entropy.
type fixture struct {
	Subject
	groups []Group
	passed int // sequences
}

const tokenWeight = 1. / 40

func newFixture(t *testing.T) *fixture {
	t.Helper()
	model, err := torch.NewModel(torch.ModelConfig{Family: torch.Llama, Head: torch.HeadLM, VocabSize: 40,
		HiddenSize: 16, IntermediateSize: 24,
		NumLayers: 2, NumHeads: 2, NumKVHeads: 1, HeadDim: 8, MaxPositions: 32, RMSNormEps: 1e-5, RopeTheta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(6, 7))
	fill(t, model, func() float32 { return float32(0.3 * r.NormFloat64()) })
	f := &fixture{Subject: Subject{Policy: learner(t, model), Batch: &train.Batch{},
		Objective: train.Objective{PolicyLoss: torch.PolicyLoss{
			Task: torch.NewLoss("ppo", map[string]float64{"clip_high": .2, "clip_dual": 0}), Temperature: 1,
			EntropyCoef: .01}}}}
	f.Columns = []train.Column{{Name: "first"}, {Name: "double"}, {Name: "other"},
		{Name: "entropy", Kind: torch.TermEntropy}}
	for g, size := range []int{2, 3, 2, 1, 2} {
		group := Group{ID: 10 - g, Std: float64(g)}
		for range size {
			i := f.Batch.Len()
			group.Rows = append(group.Rows, i)
			var s train.Sequence
			for k := range 3 + i%3 {
				s.IDs, s.Mask = append(s.IDs, int32(r.IntN(40))), append(s.Mask, k > 0)
			}
			f.Batch.Sequences = append(f.Batch.Sequences, s)
			f.Batch.Weights = append(f.Batch.Weights, slices.Repeat([]float32{tokenWeight}, len(s.IDs)))
			a, b := float32(r.NormFloat64()), float32(r.NormFloat64())
			for k, v := range []float32{a, 2 * a, b} {
				f.Columns[k].Advantages = append(f.Columns[k].Advantages, slices.Repeat([]float32{v}, len(s.IDs)))
			}
		}
		f.groups = append(f.groups, group)
	}
	f.Batch.Advantages = f.Columns[0].Advantages
	if f.Batch.Old, err = f.Policy.Compute(context.Background(), f.Batch, train.What{Temperature: 1}); err != nil {
		t.Fatal(err)
	}
	f.Batch.Progress = func(sequences int) { f.passed += sequences }
	return f
}

// learner is a model as a policy of this process; it is closed with the test.
func learner(t *testing.T, model *torch.Model) *train.Learner {
	t.Helper()
	l, err := train.NewLearner(model, train.Placement{PassTokens: 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func (f *fixture) names() (out []string) {
	for _, c := range f.Columns {
		out = append(out, c.Name)
	}
	return out
}

func fill(t *testing.T, model *torch.Model, value func() float32) {
	t.Helper()
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	for _, p := range parameters {
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			values[i] = value()
		}
		if err := p.Tensor.SetFloat32s(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := model.Touch(); err != nil {
		t.Fatal(err)
	}
}

// slowly is the gradient of one column of some rows, by parameter, and its loss: a buffer of its own, one row after
// the other.
func (f *fixture) slowly(t *testing.T, rows []int, name string,
	weight func(row int) float64) (gradient map[string][]float64, loss float64) {
	t.Helper()
	g, err := torch.NewGradients(f.Policy.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, row := range rows {
		c := f.Columns[slices.Index(f.names(), name)]
		c.Advantages, c.Into = train.Rows(c.Advantages, []int{row}), g
		one := f.Batch.Take([]int{row})
		one.Weights = [][]float32{slices.Repeat([]float32{float32(weight(row))}, len(one.Sequences[0].IDs))}
		losses, err := f.Policy.Backward(context.Background(), one, f.Objective, []train.Column{c})
		if err != nil {
			t.Fatal(err)
		}
		loss += losses.Columns[0].Loss
	}
	parameters, err := f.Policy.Model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	defer torch.CloseParameters(parameters)
	gradient = map[string][]float64{}
	for i, p := range parameters {
		values, err := all(g, i, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			gradient[p.Name] = append(gradient[p.Name], float64(v))
		}
	}
	return gradient, loss
}

// logged are a report's numbers under the prefix p.
func logged(r *Report) map[string]float64 {
	line := metrics.Line{}
	line.Add(struct {
		R *Report `metric:"p"`
	}{r})
	return line.Floats()
}

func dot(a, b map[string][]float64) (sum float64) {
	for name, values := range a {
		for i, v := range values {
			sum += v * b[name][i]
		}
	}
	return sum
}

// Every number of the exact profile equals what single gradients, taken one after the other, say: with the groups'
// gradients kept, from sketches, and one component at a time. What sketches touch is within their error.
func TestExactNumbersOneByOne(t *testing.T) {
	f := newFixture(t)
	names := f.names()
	everyRow := slices.Concat(f.groups[0].Rows, f.groups[1].Rows, f.groups[2].Rows, f.groups[3].Rows, f.groups[4].Rows)
	weight := func(int) float64 { return tokenWeight }
	for mode, o := range map[string]Options{"kept": {Analysis: config.Analysis{MemoryMiB: 1 << 10}}, "sketches": {},
		"one after the other": {Analysis: config.Analysis{LowMemory: true}}} {
		o.Profile, o.Confidence = Exact, .9
		report, err := MeasureBuckets(context.Background(), f.Subject, Quantile(f.groups, 2, false), o)
		if err != nil {
			t.Fatal(err)
		}
		slack := 1e-4
		if mode != "kept" {
			slack = .05
		}
		check := func(what string, got, want, scale, slack float64) {
			t.Helper()
			if !(math.Abs(got-want) <= slack*scale) {
				t.Errorf("%s: %s = %.8g, want %.8g", mode, what, got, want)
			}
		}
		m := logged(report)
		if len(report.Results) != 3 || !slices.Equal(report.Terms, names) {
			t.Fatalf("%s: %d results of %v", mode, len(report.Results), report.Terms)
		}
		whole := map[string]map[string][]float64{}
		for _, name := range names {
			whole[name], _ = f.slowly(t, everyRow, name, weight)
		}
		buckets := map[string]map[string]map[string][]float64{}
		for b, x := range report.Results {
			p := "p/" + x.Name + "/"
			buckets[x.Name] = map[string]map[string][]float64{}
			total, tokens := 0.0, 0
			for _, i := range x.Rows() {
				tokens += f.Batch.Sequences[i].Sampled()
			}
			check("count", m[p+"sample_count"], float64(len(x.Rows())), 1, 0)
			check("share", m[p+"sample_pct"], float64(len(x.Rows()))/10, 1, 1e-12)
			check("groups", m[p+"group_rv_count"], []float64{2, 3, 5}[b], 1, 0)
			check("smallest spread", m[p+"reward_std_min"], []float64{0, 2, 0}[b], 1, 0)
			check("largest spread", m[p+"reward_std_max"], []float64{1, 4, 4}[b], 1, 0)
			check("mean spread", m[p+"reward_std_mean"], []float64{.5, 3, 2}[b], 1, 1e-12)
			for _, name := range names {
				gradient, loss := f.slowly(t, x.Rows(), name, weight)
				buckets[x.Name][name] = gradient
				total += loss
				square := dot(gradient, gradient)
				norm := math.Sqrt(square)
				check(p+name, m[p+name], norm, norm, 1e-5)
				check(p+"per sample", m[p+"per_sample/"+name], norm/float64(len(x.Rows())), norm, 1e-5)
				check(p+"per token", m[p+"per_token/"+name], norm/float64(tokens), norm, 1e-5)
				check(p+"loss", m[p+"loss/"+name], loss, 1, 1e-6)
				if _, found := m[p+"cosine_all/"+name]; found != (x.Name != "all") {
					t.Errorf("%s: %s has a cosine with all: %v", mode, x.Name, found)
				} else if found {
					check(p+"cosine with all", m[p+"cosine_all/"+name],
						dot(gradient, whole[name])/math.Sqrt(square*dot(whole[name], whole[name])), 1, slack)
				}
				var squares, products []float64
				mean := 0.0
				for g, group := range x.Bucket.Groups {
					own, _ := f.slowly(t, group.Rows, name, weight)
					squares, products = append(squares, dot(own, own)), append(products, dot(own, gradient))
					mean += math.Sqrt(dot(own, own)) / float64(len(x.Bucket.Groups))
					check(p+"group norm", x.Terms[name].groupNorms[g], math.Sqrt(dot(own, own)), norm, 1e-5)
				}
				check(p+"mean group norm", m[p+"group_norm_mean/"+name], mean, mean, 1e-5)
				s := Separate(square, squares, products, .9)
				check(p+"signal", m[p+"signal_sq/"+name], s.Square, square, 1e-4)
				check(p+"noise", m[p+"noise_sq/"+name], s.Noise, square, 1e-4)
				if _, found := m[p+"signal_sq_low/"+name]; found != (len(x.Bucket.Groups) > 2) {
					t.Errorf("%s: %s of %d groups has an interval: %v", mode, p, len(x.Bucket.Groups), found)
				} else if found {
					check(p+"low", m[p+"signal_sq_low/"+name], *s.Low, math.Abs(*s.High-*s.Low), 5*slack)
					check(p+"high", m[p+"signal_sq_high/"+name], *s.High, math.Abs(*s.High-*s.Low), 5*slack)
				}
				blocks := 0.0
				for i, block := range report.layers {
					want := 0.0
					for parameter, values := range gradient {
						if strings.HasPrefix(strings.TrimPrefix(parameter, "model."), block.name+".") {
							for _, v := range values {
								want += v * v
							}
						}
					}
					check(p+block.name, x.Terms[name].layers[i], math.Sqrt(want), norm, 1e-5)
					blocks += want
				}
				check(p+"blocks together", blocks, square, square, 1e-6)
			}
			check(p+"total loss", m[p+"loss/total"], total, 1, 1e-6)
			for k, name := range names {
				for _, other := range names[k+1:] {
					a, b := buckets[x.Name][name], buckets[x.Name][other]
					check(p+name+"_"+other, m[p+"cosine/"+name+"_"+other], dot(a, b)/math.Sqrt(dot(a, a)*dot(b, b)), 1,
						slack)
				}
			}
		}
		if len(report.Cosines.Rows) != len(names) {
			t.Errorf("%s: %d pairs of buckets", mode, len(report.Cosines.Rows))
		}
		for _, row := range report.Cosines.Rows {
			term, unbiased := row[2].(string), row[4].(float64)
			a, b := buckets[row[0].(string)][term], buckets[row[1].(string)][term]
			check(fmt.Sprint(row), row[3].(float64), dot(a, b)/math.Sqrt(dot(a, a)*dot(b, b)), 1, slack)
			if sa, sb := m["p/bucket_1/signal_sq/"+term], m["p/bucket_2/signal_sq/"+term]; sa > 0 && sb > 0 {
				check(fmt.Sprint("unbiased ", row), unbiased, dot(a, b)/math.Sqrt(sa*sb), dot(a, a)/sa+dot(b, b)/sb, slack)
			} else if !math.IsNaN(unbiased) {
				t.Errorf("%s: %v has an unbiased cosine of signals %v and %v", mode, row, sa, sb)
			}
		}
	}
}

// Every row goes through the model once, however many buckets and columns there are.
func TestEveryRowIsMetOnce(t *testing.T) {
	f := newFixture(t)
	f.passed = 0
	if _, err := MeasureBuckets(context.Background(), f.Subject, Quantile(f.groups, 2, false),
		Options{Analysis: config.Analysis{Profile: Exact}}); err != nil {
		t.Fatal(err)
	}
	if f.passed != 10 {
		t.Errorf("%d sequences were passed, the batch has 10", f.passed)
	}
}

// The paper profile is the mean over mini-batches of the norms of micro-batch means, each divided by the micro-batches
// of a full mini-batch. paperByHand makes RAGEN's numbers from gradients that are taken one by one: every rank goes
// through its run of the rows, mini-batches are divided by the micro-batches of a full one, norms are averaged over
// mini-batches and losses over micro-batches.
func (f *fixture) paperByHand(t *testing.T, report *Report) {
	t.Helper()
	o := report.Options
	for _, x := range report.Results {
		rows := x.Rows()[:x.Samples]
		share, mini := x.Samples/o.PaperRanks, o.MiniBatch/o.PaperRanks
		for _, name := range f.names() {
			norms, minis, loss, micros := 0.0, 0.0, 0.0, 0.0
			for begin := 0; begin < share; begin += mini {
				var gradient map[string][]float64
				for rank := range o.PaperRanks {
					own := rows[rank*share+begin : rank*share+min(begin+mini, share)]
					for micro := range slices.Chunk(own, o.PaperMicroBatch) {
						tokens := 0.0
						for _, i := range micro {
							tokens += float64(f.Batch.Sequences[i].Sampled())
						}
						part, l := f.slowly(t, micro, name, func(int) float64 { return 1 / tokens })
						loss += l
						micros++
						if gradient == nil {
							gradient = part
							continue
						}
						for parameter := range gradient {
							for i, v := range part[parameter] {
								gradient[parameter][i] += v
							}
						}
					}
				}
				norms += math.Sqrt(dot(gradient, gradient)) * float64(o.PaperMicroBatch) / float64(o.MiniBatch)
				minis++
			}
			if want := norms / minis; math.Abs(x.Terms[name].Norm-want) > 1e-5*want {
				t.Errorf("%d ranks, micro-batches of %d, %s: %s = %v, want %v", o.PaperRanks, o.PaperMicroBatch, x.Name, name,
					x.Terms[name].Norm, want)
			}
			if want := loss / micros; math.Abs(x.Losses[name]-want) > 1e-5 {
				t.Errorf("%d ranks, %s: loss of %s = %v, want %v", o.PaperRanks, x.Name, name, x.Losses[name], want)
			}
		}
	}
}

func TestPaperNumbersOneByOne(t *testing.T) {
	f := newFixture(t)
	o := Options{config.Analysis{Profile: Paper, PaperMicroBatch: 2, PaperRanks: 1}, .9, 4, "token-mean", 0, false}
	report, err := MeasureBuckets(context.Background(), f.Subject, Quantile(f.groups, 2, true), o)
	if err != nil {
		t.Fatal(err)
	}
	f.paperByHand(t, report)
	// Two ranks: rows are cut to an even number and dealt in equal runs; a bucket of one row is left out.
	o.PaperRanks = 2
	groups := []Group{{ID: 1, Rows: []int{3}}, {ID: 2, Std: 7, Rows: []int{0, 1, 2}}}
	f.Subject = f.take([]int{0, 1, 2, 3})
	report, err = MeasureBuckets(context.Background(), f.Subject, Quantile(groups, 2, true), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 2 || report.Results[0].Name != "bucket_2" || report.Results[0].Samples != 2 ||
		report.Results[1].Samples != 4 ||
		report.Results[0].Share != .5 || report.Results[1].Low != 0 || report.Results[0].Low != 7 ||
		report.Results[0].High != 7 ||
		report.Results[0].Tokens != f.Batch.Sequences[0].Sampled()+f.Batch.Sequences[1].Sampled() {
		t.Errorf("two ranks: %+v", report.Results)
	}
	f.paperByHand(t, report)
	o.PaperMicroBatch = 1
	if report, err = MeasureBuckets(context.Background(), f.Subject, Quantile(groups, 1, true), o); err != nil {
		t.Fatal(err)
	}
	f.paperByHand(t, report)
	o = Options{Analysis: config.Analysis{Profile: Paper, PaperMicroBatch: 1, PaperRanks: 8}, MiniBatch: 8}
	if _, err := MeasureBuckets(context.Background(), f.Subject, Quantile(groups, 2, true), o); err == nil {
		t.Error("fewer rows than ranks: no error")
	}
}

func TestMeasureThatCannotGoOn(t *testing.T) {
	f := newFixture(t)
	o := Options{Confidence: .9, Analysis: config.Analysis{Profile: Exact}}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("enough")
	cancel(stop)
	for _, profile := range []Options{o,
		{config.Analysis{Profile: Paper, PaperMicroBatch: 2, PaperRanks: 1}, .9, 4, "token-mean", 0, false}} {
		if _, err := MeasureBuckets(ctx, f.Subject, Quantile(f.groups, 2, false), profile); !errors.Is(err, stop) {
			t.Errorf("cancelled: %v", err)
		}
	}
	f.Columns[2].Advantages[4][1], f.Batch.Weights[4][1] = 3e38, 3e38
	for _, keep := range []int{0, 1 << 10} {
		o.MemoryMiB = keep
		if _, err := MeasureBuckets(context.Background(), f.Subject, Quantile(f.groups, 2, false), o); !errors.Is(err,
			torch.ErrNotFinite) {
			t.Errorf("an infinite gradient: %v", err)
		}
	}
}

// The files hold every group with its spread and gradient norms, and every number, under the names of their batch.
func TestFiles(t *testing.T) {
	f := newFixture(t)
	report, err := MeasureBuckets(context.Background(), f.Subject, Quantile(f.groups, 2, false),
		Options{Confidence: .9, Analysis: config.Analysis{Profile: Exact, MemoryMiB: 1 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	values := metrics.Line{"grad_analysis/profile": "exact", "x": math.NaN(), "nothing": nil}
	values.Add(struct {
		After  *Report `metric:"grad_norm"`
		Before *Report `metric:"grad_norm_prefilter"`
	}{report, report})
	blocks := values["grad_norm/block_table"].(metrics.Table)
	if len(blocks.Rows) != 3*5 || blocks.Rows[0][1] != "embed_tokens" || len(blocks.Columns) != 6 {
		t.Errorf("blocks: %v", blocks)
	}
	dir := filepath.Join(t.TempDir(), "analysis")
	if err := WriteFiles(dir, 7, values); err != nil {
		t.Fatal(err)
	}
	read := func(name string) [][]string {
		t.Helper()
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		rows, err := csv.NewReader(file).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	for _, before := range []string{"", "prefilter_"} {
		spreads := read("gradient_analysis_bucket_rv_table_" + before + "step_7.csv")
		if len(spreads) != 6 || strings.Join(spreads[0], " ") != "bucket group_id reward_std profile" ||
			strings.Join(spreads[1], " ") != "bucket_1 10 0 exact" ||
			strings.Join(spreads[5], " ") != "bucket_2 6 4 exact" {
			t.Errorf("spreads: %v", spreads)
		}
		groups := read("gradient_analysis_group_table_" + before + "step_7.csv")
		if len(groups) != 6 || strings.Join(groups[0],
			" ") != "bucket group_id reward_std episodes first double other entropy profile" ||
			groups[2][3] != "3" || groups[2][4] != fmt.Sprint(report.Results[0].Terms["first"].groupNorms[1]) {
			t.Errorf("groups: %v", groups)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "gradient_analysis_metrics_step_7.json"))
	if err != nil || !strings.Contains(string(data), `"step": 7`) || !strings.Contains(string(data), `"x": "NaN"`) ||
		!strings.Contains(string(data), `"nothing": null`) {
		t.Errorf("%v %.200s", err, data)
	}
	if p := report.Plan.String(); !strings.Contains(p, "32 gradient buffers") ||
		!strings.Contains(p, "every group's gradient kept") || !strings.Contains(p, "one forward pass") {
		t.Errorf("plan: %s", p)
	}
}

func TestLayers(t *testing.T) {
	for parameter, want := range map[string]string{"model.layers.11.mlp.up_proj.weight": "layers.11",
		"model.embed_tokens.weight": "embed_tokens", "lm_head.weight": "lm_head",
		"layers": "layers"} {
		if got := Layer(parameter); got != want {
			t.Errorf("%s is of %q, want %q", parameter, got, want)
		}
	}
}
