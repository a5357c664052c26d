package plot

import (
	"bytes"
	"fmt"
	"image/png"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/run/metrics"
)

// probe logs an analysis of two buckets with these estimates and intervals of the task's signal per group.
func probe(t *testing.T, profile string, lowest, highest [3]float64) string {
	t.Helper()
	dir := t.TempDir()
	logger, err := metrics.Open(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer logger.Close()
	m := map[string]any{"grad_analysis/profile": profile, "grad_analysis/confidence": 0.95}
	for i, estimate := range [][3]float64{lowest, highest} {
		p := fmt.Sprintf("grad_norm/bucket_%d/", i+1)
		m[p+"sample_count"], m[p+"group_rv_count"], m[p+"reward_std_mean"] = 32.0, 4.0, float64(i+1)
		m[p+"task"] = 4 * 0.05 * float64(i+1) // the measured norm per group is 0.05 and 0.1
		m[p+"signal_per_group/task"], m[p+"signal_per_group_low/task"], m[p+"signal_per_group_high/task"] = estimate[0],
			estimate[1], estimate[2]
	}
	if err := logger.Log(1, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A verdict claims what the intervals say and no more.
func TestSignalsSayWhatTheirIntervalsSay(t *testing.T) {
	nothing, clear := [3]float64{0, 0, 0.02}, [3]float64{0.09, 0.06, 0.11}
	f, results, err := Signals("title", []Signal{
		{"a", "before", probe(t, "exact", nothing, clear)}, {"a", "after", probe(t, "exact", nothing, nothing)},
		{"b", "before", probe(t, "exact", nothing, nothing)}, {"b", "after", probe(t, "exact", clear, clear)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := f.PNG(&out, testDPI); err != nil {
		t.Fatal(err)
	}
	if picture, err := png.DecodeConfig(&out); err != nil || picture.Width < 500 || picture.Height < 350 {
		t.Errorf("%+v, %v: want two columns and two rows", picture, err)
	}
	text := results.Text(80)
	for _, want := range []string{
		"a  before  Q1        1         0 [0, 0.02]  may be zero\n",
		"a  before  Q2        2   0.09 [0.06, 0.11]  is not zero\n",
		"b  after   Q1        1   0.09 [0.06, 0.11]  is not zero\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
}

func TestSignalsOfAHoleOrOfTwoProfilesAreRefused(t *testing.T) {
	clear := [3]float64{0.09, 0.06, 0.11}
	one, paper := probe(t, "exact", clear, clear), probe(t, "paper", clear, clear)
	for want, list := range map[string][]Signal{
		"b/after is missing":      {{"a", "before", one}, {"a", "after", one}, {"b", "before", one}},
		"a/before is given twice": {{"a", "before", one}, {"a", "before", one}},
		"paper profile":           {{"a", "before", one}, {"a", "after", paper}},
		"no step has":             {{"a", "before", writeRun(t)}},
	} {
		if _, _, err := Signals("", list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, profile := range []string{"exact", "paper"} {
		f, _, err := Signals("title", []Signal{{"a", "before", probe(t, profile, clear, clear)}})
		if err != nil || !strings.HasPrefix(f.Caption, profile+" profile; ") {
			t.Errorf("the caption is %q (%v), want the %s profile in it", f.Caption, err, profile)
		}
	}
}
