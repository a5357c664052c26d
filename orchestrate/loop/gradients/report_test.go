package gradients

import (
	"math"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// What a group contributes to the signal compares buckets of different size, and a bucket without an interval says why.
func TestSignalPerGroup(t *testing.T) {
	report := func(o Options, groups ...int) *Report {
		r := &Report{Options: o, Terms: []string{torch.Task}}
		for i, n := range groups {
			x := &Result{Bucket: Bucket{Name: []string{"bucket_1", "bucket_2", "bucket_3", "all"}[i],
				Groups: make([]Group, n)}, Losses: map[string]float64{}, Terms: map[string]*Term{}}
			term := x.put(torch.Task, 1, 0)
			term.groupNorms = make([]float64, n)
			squares, products := make([]float64, n), make([]float64, n) // n equal gradients of norm 1/2
			for k := range squares {
				squares[k], products[k] = .25, .25*float64(n)
			}
			if o.Profile == Exact {
				term.Signal = Separate(.25*float64(n*n), squares, products, .95)
			}
			r.Results = append(r.Results, x)
		}
		r.tabulate()
		return r
	}
	exact := Options{Confidence: .95, Analysis: config.Analysis{Profile: Exact}}
	r := report(exact, 1, 2, 7, 10)
	m := logged(r)
	for bucket, interval := range map[string]bool{"bucket_2": false, "bucket_3": true, "all": true} {
		p := "p/" + bucket + "/"
		if got := m[p+"signal_per_group/task"]; math.Abs(got-.5) > 1e-12 {
			t.Errorf("%s: %v per group, want 0.5", bucket, got)
		}
		_, low := m[p+"signal_per_group_low/task"]
		_, high := m[p+"signal_per_group_high/task"]
		if why := r.Buckets[bucket].NoInterval; low != interval || high != interval || (why == "") != interval {
			t.Errorf("%s: interval %v %v, reason %q", bucket, low, high, why)
		}
	}
	if _, found := m["p/bucket_1/signal_per_group/task"]; found || !strings.Contains(r.Buckets["bucket_1"].NoInterval,
		"1 group") {
		t.Errorf("one group: signal %v, note %q", found, r.Buckets["bucket_1"].NoInterval)
	}
	if text := r.Console("x"); !strings.Contains(text, "bucket_2 has no interval: 2 groups") ||
		strings.Contains(text, "bucket_3 has no") {
		t.Errorf("the table says\n%s", text)
	}
	for _, x := range report(Options{Analysis: config.Analysis{Profile: Paper}}, 7, 7).Results {
		if !strings.Contains(x.NoInterval, "paper") {
			t.Errorf("the paper profile: %q", x.NoInterval)
		}
	}
}

// Tables are there where they have rows: layers in the exact profile, cosines between two buckets or more.
func TestTablesWithoutRows(t *testing.T) {
	r := &Report{Options: Options{Analysis: config.Analysis{Profile: Paper}},
		Results: []*Result{{Bucket: Bucket{Name: "all", Groups: []Group{{ID: 3, Std: 2}}}}}}
	if r.tabulate(); len(r.Layers.Columns) > 0 || len(r.Cosines.Columns) > 0 || len(r.All().Table.Rows) != 1 {
		t.Errorf("layers %v, cosines %v, groups %v", r.Layers, r.Cosines, r.All().Table)
	}
}

// The table says by which procedure its numbers were made, and what share of the episodes a bucket has.
func TestConsoleNamesTheProcedure(t *testing.T) {
	for want, o := range map[string]Options{
		"x (exact profile, 95% intervals)": {Confidence: .95, Analysis: config.Analysis{Profile: Exact}},
		"x (paper profile: mean norm of mini-batches of 8, micro-batches of 2, ranks 4)": {MiniBatch: 8,
			Analysis: config.Analysis{Profile: Paper, PaperMicroBatch: 2, PaperRanks: 4}},
	} {
		r := &Report{Options: o, Results: []*Result{{Bucket: Bucket{Name: "all", Groups: make([]Group, 7)},
			GroupCount: 7, Samples: 1, Share: .125, Low: .25, High: 2}}}
		if text := r.Console("x"); !strings.HasPrefix(text, want+"\n") || !strings.Contains(text, "12.5 %") ||
			!strings.Contains(text, "0.25–2") {
			t.Errorf("want %q and 12.5 %% in\n%s", want, text)
		}
	}
}
