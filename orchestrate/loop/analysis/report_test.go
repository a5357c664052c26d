package analysis

import (
	"math"
	"strings"
	"testing"

	"gyre/torch"
)

// What a group contributes to the signal compares buckets of different size, and a bucket without an interval says why.
func TestSignalPerGroup(t *testing.T) {
	report := func(o Options, groups ...int) Report {
		r := Report{Options: o}
		for i, n := range groups {
			x := Result{Bucket: Bucket{Name: []string{"bucket_1", "bucket_2", "bucket_3", "all"}[i], Groups: make([]Group, n)},
				Signals: map[string]Signal{}, Norms: map[string]float64{torch.Task: 1}, Losses: map[string]float64{}}
			squares, products := make([]float64, n), make([]float64, n) // n equal gradients of norm 1/2
			for k := range squares {
				squares[k], products[k] = .25, .25*float64(n)
			}
			if s, ok := Separate(.25*float64(n*n), squares, products, .95); ok && o.Statistics && o.Profile == Exact {
				x.Signals[torch.Task] = s
			}
			r.Results = append(r.Results, x)
		}
		return r
	}
	exact := Options{Profile: Exact, Statistics: true, Confidence: .95}
	r := report(exact, 1, 2, 7, 10)
	m, notes := r.Metrics("grad_norm"), r.Notes("grad_norm")
	for bucket, interval := range map[string]bool{"bucket_2": false, "bucket_3": true, "all": true} {
		p := "grad_norm/" + bucket + "/"
		if got := m[p+"signal_per_group/task"]; math.Abs(got-.5) > 1e-12 {
			t.Errorf("%s: %v per group, want 0.5", bucket, got)
		}
		_, low := m[p+"signal_per_group_low/task"]
		_, high := m[p+"signal_per_group_high/task"]
		if _, why := notes[p+"no_interval"]; low != interval || high != interval || why == interval {
			t.Errorf("%s: interval %v %v, reason given %v", bucket, low, high, why)
		}
	}
	if _, found := m["grad_norm/bucket_1/signal_per_group/task"]; found || !strings.Contains(notes["grad_norm/bucket_1/no_interval"], "1 group") {
		t.Errorf("one group: signal %v, note %q", found, notes["grad_norm/bucket_1/no_interval"])
	}
	if text := r.Console("x"); !strings.Contains(text, "bucket_2 has no interval: 2 groups") || strings.Contains(text, "bucket_3 has no") {
		t.Errorf("the table says\n%s", text)
	}
	for what, o := range map[string]Options{"paper": {Profile: Paper, Statistics: true}, "statistics": {Profile: Exact}} {
		notes := report(o, 7, 7).Notes("p")
		if len(notes) != 2 || !strings.Contains(notes["p/bucket_1/no_interval"], what) {
			t.Errorf("%s: %v", what, notes)
		}
	}
	norm, low, high := Signal{Square: -1, Low: -4, High: 9}.PerGroup(3)
	if norm != 0 || low != 0 || high != 1 {
		t.Errorf("%v [%v, %v], want 0 [0, 1]", norm, low, high)
	}
}

// Tables are there where they have rows: blocks of the model with statistics, cosines between two buckets or more.
func TestTablesWithoutRows(t *testing.T) {
	r := Report{Options: Options{Profile: Exact}, Results: []Result{{Bucket: Bucket{Name: "all", Groups: []Group{{ID: 3, Spread: 2}}}}}}
	for _, name := range []string{"x/block_table", "x/cosine_table"} {
		if table, found := r.Tables("x")[name]; found {
			t.Errorf("%s: %v", name, table)
		}
	}
	r.Pairs = []Pair{{First: "bucket_1", Second: "bucket_2", Component: torch.Task, Cosine: .5, Unbiased: .75}}
	if table := r.Tables("x")["x/cosine_table"]; len(table.Rows) != 1 || table.Rows[0][3] != .5 {
		t.Errorf("one pair of buckets: %v", table)
	}
}

// The table says by which procedure its numbers were made, and what share of the episodes a bucket has.
func TestConsoleNamesTheProcedure(t *testing.T) {
	for want, o := range map[string]Options{
		"x (exact profile)":                {Profile: Exact},
		"x (exact profile, 95% intervals)": {Profile: Exact, Statistics: true, Confidence: .95},
		"x (paper profile: mean norm of mini-batches of 8, micro-batches of 2, ranks 4)": {Profile: Paper, MiniBatch: 8, MicroBatch: 2, Ranks: 4, Statistics: true},
	} {
		r := Report{Options: o, Results: []Result{{Bucket: Bucket{Name: "all", Groups: make([]Group, 7)}, Samples: 1, Fraction: .125}}}
		if text := r.Console("x"); !strings.HasPrefix(text, want+"\n") || !strings.Contains(text, "12.5%") {
			t.Errorf("want %q and 12.5%% in\n%s", want, text)
		}
	}
}
