package report

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	listing "gyre/orchestrate/study/runs"
)

const hostile = `</pre><script>alert("x")</script><img src=https://example.org/x onerror=alert(1)>`

// writeRun leaves a run of five steps as a trainer does, with text that would like to be markup wherever others write
// text.
func writeRun(t *testing.T, name, config string, analysed ...int) *rundir.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	l, err := metrics.Open(filepath.Join(dir, metrics.File))
	if err != nil {
		t.Fatal(err)
	}
	for step := range 5 {
		m := map[string]any{"timing_s/step": 2.0, "actor/entropy": 1 - float64(step)/8, "note": hostile}
		if step%2 == 0 {
			m["val-env/<b>tag/success"], m["timing_s/testing"] = float64(step)/8, 1.0
		}
		for _, at := range analysed {
			if at != step {
				continue
			}
			m["grad_analysis/profile"] = "exact"
			for _, bucket := range []string{"bucket_1", "bucket_2", "all"} {
				p := "grad_norm/" + bucket + "/"
				m[p+"sample_count"], m[p+"group_rv_count"], m[p+"task"], m[p+"reward_std_mean"] = 8.0, 2.0, 0.25, 1.5
				m[p+"reward_std_min"], m[p+"reward_std_max"] = 1.0, 2.0
			}
		}
		if err := l.Log(step, m); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	for file, text := range map[string]string{
		"config.toml": config,
		"log.txt": "2026-01-02 03:04:05 hello\n2026-01-02 03:04:06 warning: mind " + hostile +
			"\n2026-01-02 03:04:07 warning: mind " + hostile + "\n",
		"run.json": `{"id": "abcd1234", "status": "stopped_early", "reason": "` +
			strings.ReplaceAll(hostile, `"`, `\"`) + `", "model": "m"}`,
		"rollouts/validation_4.jsonl": `{"step": 4, "group": 0, "episode": 0, "tag": "<i>sokoban", "ids": [1, 319, 7, 8], "mask": [0, 0, 1, 1], "rewards": [[3, 1.5]], "score": 1.5, "success": true}` + "\n" +
			`{"step": 4, "group": 1, "episode": 1, "ids": [1, 9], "mask": [0, 1], "rewards": [[1, -1]], "score": -1, "success": false}` + "\n",
	} {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r, err := rundir.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pageOf(t *testing.T, runs ...*rundir.Run) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := Write(context.Background(), runs, Paired{}, path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestPageHoldsTheRun(t *testing.T) {
	page := pageOf(t, writeRun(t, "demo", "[run]\nname = \"demo\" # "+hostile+"\n", 1, 3))
	for _, want := range []string{"demo", "stopped early at step 4", "id abcd1234", "Step 1 (exact profile)",
		"Step 3 (exact profile)", "validation after step 4, highest score",
		"score 1.5", "1 319", "7 8", "50.0 %", "Every metric of the last step", "[run]", "mind &lt;/pre&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	// Of training success, entropy and time; of each analysed step the task's gradient and reward std, and two of its
	// norms.
	if n := strings.Count(page, "data:image/svg"); n != 3+2*(2+2) {
		t.Errorf("%d panels", n)
	}
}

// What policies, environments and failed runs write stays text, and the page asks for nothing.
func TestPageIsInertAndSelfContained(t *testing.T) {
	page := pageOf(t, writeRun(t, "demo", "# "+hostile), writeRun(t, "other", "# "+hostile))
	if strings.Contains(page, "<script") || strings.Contains(page, "<i>sokoban") || strings.Contains(page, "<b>tag") ||
		strings.Contains(page, "<img src=https") {
		t.Error("text of others is markup in the page")
	}
	if !strings.Contains(page, "&lt;script&gt;") {
		t.Error("the hostile text is not shown at all")
	}
	for _, reference := range regexp.MustCompile(`(?i)<[^>]*\b(?:src|href|srcset|action)\s*=\s*"([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(reference[1], "data:") && !strings.HasPrefix(reference[1], "#") {
			t.Errorf("the page refers to %.60s", reference[1])
		}
	}
	if !strings.Contains(page, "default-src 'none'") || strings.Contains(page, "url(") ||
		strings.Contains(page, "@import") {
		t.Error("the page could load something")
	}
}

func TestSeveralRunsAreCompared(t *testing.T) {
	a, b := writeRun(t, "a", "[filter]\nvalue = 0.9\n[actor]\nlr = 1e-4\n"),
		writeRun(t, "b", "[filter]\nvalue = 0.5\n[actor]\nlr = 1e-4\n")
	a.Info.Files, b.Info.Files = map[string]string{"held.jsonl": "aa"}, map[string]string{"held.jsonl": "bb"}
	p, err := newPage(context.Background(), []*rundir.Run{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Comparison.Panels) == 0 || len(p.Runs) != 2 {
		t.Errorf("%d panels of %d runs", len(p.Comparison.Panels), len(p.Runs))
	}
	if last := p.Differences.Rows[len(p.Differences.Rows)-1]; !slices.Equal(last, []any{"file held.jsonl", "aa", "bb"}) {
		t.Errorf("the last difference is %v, want that of held.jsonl", last)
	}
	var text strings.Builder
	if err := listing.Configurations([]*rundir.Run{a, b}, []string{"a", "b"}).WriteCSV(&text); err != nil ||
		text.String() != "key,a,b\nfilter.value,0.9,0.5\n" {
		t.Errorf("differences %q (%v), want that of filter.value", text.String(), err)
	}
	row := outcomes([]*rundir.Run{a}, []string{"a"}).Rows[0]
	if row[4] != (table.Cell{Value: 0.5, Text: "50.0 %"}) || row[5] != 4 || row[7] != nil {
		t.Errorf("outcome %v, want a peak of 50 %% at step 4, of an unknown number of episodes", row)
	}
}

// Runs that differ in their seeds and places only are one condition, whose mean over seeds has a band.
func TestSeedsAreOneCondition(t *testing.T) {
	var runs []*rundir.Run
	study := t.TempDir()
	for _, lr := range []string{"0.1", "0.3", "0.5"} {
		for seed := 1; seed <= 2; seed++ {
			name := fmt.Sprintf("%s/seed_%d", lr, seed)
			r := writeRun(t, "r", fmt.Sprintf("[run]\nname = \"seed_%d\"\noutput = %q\nseed = %d\nenv_seed = %d\n"+
				"threads = %d\n[actor]\nlr = %s\n", seed, lr, seed, 7*seed, seed, lr))
			if err := os.MkdirAll(filepath.Join(study, lr), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(r.Dir, filepath.Join(study, name)); err != nil {
				t.Fatal(err)
			}
			r.Dir, r.Name = filepath.Join(study, name), filepath.Base(name)
			runs = append(runs, r)
		}
	}
	runs[5].Info.Files = map[string]string{"env.py": "another"}
	var got []string
	for _, c := range conditionsOf(runs, labelsOf(runs)) {
		got = append(got, fmt.Sprintf("%s: %d", c.Label, len(c.Runs)))
	}
	if want := []string{"0.1: 2", "0.3: 2", "0.5/seed_1: 1", "0.5/seed_2: 1"}; !slices.Equal(got, want) {
		t.Errorf("conditions %q, want %q", got, want)
	}
	p, err := newPage(context.Background(), runs)
	if err != nil {
		t.Fatal(err)
	}
	if caption := p.Comparison.Caption; !strings.Contains(caption, "mean over seeds") ||
		strings.Contains(caption, "no bands") {
		t.Errorf("caption %q", caption)
	}
}

// A run whose configuration a resumption changed is not shown as if it had always been so.
func TestChangesAtAResumptionAreSaid(t *testing.T) {
	a, b := writeRun(t, "a", "[actor]\nlr = 1e-4\n"), writeRun(t, "b", "[actor]\nlr = 1e-4\n")
	b.Info.Changes = []config.Change{{Step: 1, Key: "run.save_every", From: "1", To: "2"}}
	a.Info.Changes = []config.Change{{Step: 2, Key: "actor.lr", From: "0.01", To: "0.0001"}}
	page := pageOf(t, a, b)
	for _, want := range []string{"a (changed after step 2)",
		"After step 2 the run went on with another actor.lr: 0.0001, before 0.01.", "0.0001; to step 2 0.01"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if strings.Contains(page, "b (changed") {
		t.Error("what is saved counts as another way to train")
	}
}

// What gyre analyze left beside a run is part of its page.
func TestAnalysesBesideARunAreShown(t *testing.T) {
	r, probe := writeRun(t, "demo", ""), writeRun(t, "before", "", 1)
	if err := os.MkdirAll(r.Dir+"-analysis", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(probe.Dir, filepath.Join(r.Dir+"-analysis", "before")); err != nil {
		t.Fatal(err)
	}
	if page := pageOf(t, r); !strings.Contains(page, "before: Step 1 (exact profile)") {
		t.Error("the analysis is not on the page")
	}
}
