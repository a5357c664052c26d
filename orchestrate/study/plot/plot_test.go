package plot

import (
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// testDPI makes small pictures, for speed.
const testDPI = 80

// analysed is what a gradient analysis with three buckets logs; the KL component is off.
func analysed(withTables bool) map[string]any {
	m := map[string]any{"grad_analysis/profile": "exact", "grad_analysis/confidence": 0.9}
	for i, name := range []string{"bucket_1", "bucket_2", "bucket_10", "all"} {
		p, x := "grad_norm/"+name+"/", float64(i+1)
		for key, v := range map[string]float64{
			"sample_count": 8, "group_rv_count": 2, "reward_std_mean": x, "reward_std_min": x - 0.5,
			"reward_std_max": x + 0.5,
			"task":           x / 10, "entropy": 0.003, "per_sample/task": x / 80, "per_token/task": x / 8000,
			"per_sample/entropy": 0.0004, "per_token/entropy": 0.000004, "loss/policy": 0.02 - x/100,
			"loss/entropy": -0.001, "loss/total": 0.01,
		} {
			m[p+key] = v
		}
		if withTables {
			m[p+"group_rv_table"] = metrics.Table{Columns: []string{"bucket", "group_id", "reward_std"},
				Rows: [][]any{{name, 2 * i, x - 0.5}, {name, 2*i + 1, x + 0.5}}}
		}
	}
	return m
}

// writeRun logs 30 training steps, of which the given ones are analysed.
func writeRun(t *testing.T, at ...int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "demo")
	logger, err := metrics.Open(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer logger.Close()
	for step := range 31 {
		x := float64(step)
		m := map[string]any{}
		if step%10 == 0 {
			m["val-env/sokoban/success"], m["timing_s/testing"] = x/40, 3.0
		}
		if step > 0 {
			m["train/sokoban/success"], m["actor/grad_norm"], m["actor/pg_loss"] = x/50, math.Exp(-x/5), math.Sin(x)
			m["timing_s/gen"], m["timing_s/update_actor"], m["timing_s/step"] = 5.0, 2.0, 8.0
		}
		if step == 12 {
			m["actor/pg_loss"] = math.NaN()
		}
		if slices.Contains(at, step) {
			for key, v := range analysed(step != 21) {
				m[key] = v
			}
		}
		if err := logger.Log(step, m); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// drawAll draws a run into a folder and returns the names of the files that it wrote, and its notes.
func drawAll(t *testing.T, dir, out string, prefilter bool, steps ...int) (wrote, notes []string, err error) {
	t.Helper()
	r, err := rundir.Read(dir)
	if err != nil {
		return nil, nil, err
	}
	files, notes, err := Draw(r, steps, prefilter)
	for _, f := range files {
		if err := f.Save(filepath.Join(out, f.Name), testDPI); err != nil {
			t.Fatal(err)
		}
		wrote = append(wrote, f.Name)
	}
	return wrote, notes, errors.Join(err, r.Broken)
}

func stepFiles(n int) []string {
	var out []string
	for _, name := range []string{"summary_step_%d.png", "plots_step_%d.png", "loss_plots_step_%d.png",
		"reward_std_step_%d.png",
		"normed_grads_step_%d.png", "metrics_step_%d.json", "bucket_rv_table_step_%d.csv"} {
		out = append(out, "gradient_analysis_"+fmt.Sprintf(name, n))
	}
	return out
}

// checkPNG decodes a picture and wants a printable size and more than a handful of dark and of coloured pixels.
func checkPNG(t *testing.T, path string, dpi int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	size := picture.Bounds().Size()
	dark, coloured := 0, 0
	for y := range size.Y {
		for x := range size.X {
			r, g, b, _ := picture.At(x, y).RGBA()
			high, low := max(r, g, b), min(r, g, b)
			if high < 0x5000 {
				dark++
			}
			if high-low > 0x6000 {
				coloured++
			}
		}
	}
	if size.X < 4*dpi || size.Y < 2*dpi || size.X > 12*dpi || size.Y > 15*dpi || 1000*dark < size.X*size.Y ||
		2000*coloured < size.X*size.Y {
		t.Errorf("%s: %v pixels, %d dark and %d coloured ones", path, size, dark, coloured)
	}
}

func TestDrawWritesEveryFile(t *testing.T) {
	dir := writeRun(t, 1, 11, 21)
	wrote, notes, err := drawAll(t, dir, filepath.Join(dir, "plots"), false)
	if err != nil || len(notes) > 0 {
		t.Fatalf("error %v, notes %q", err, notes)
	}
	want := []string{"training.png"}
	for _, n := range []int{1, 11, 21} {
		want = append(want, stepFiles(n)...)
	}
	want = append(want, "gradient_analysis_steps.png")
	if !reflect.DeepEqual(wrote, want) {
		t.Errorf("wrote %q\nwant  %q", wrote, want)
	}
	found, _ := os.ReadDir(filepath.Join(dir, "plots"))
	if len(found) != len(want) {
		t.Errorf("%d files in plots, want %d", len(found), len(want))
	}
	for _, name := range []string{"training.png", "gradient_analysis_steps.png", "gradient_analysis_summary_step_1.png",
		"gradient_analysis_summary_step_21.png", "gradient_analysis_normed_grads_step_11.png"} {
		checkPNG(t, filepath.Join(dir, "plots", name), testDPI)
	}
}

func TestStepSelectionAndExports(t *testing.T) {
	dir := writeRun(t, 1, 11)
	out := filepath.Join(dir, "elsewhere")
	wrote, _, err := drawAll(t, filepath.Join(dir, "metrics.jsonl"), out, false, 11, 11)
	if err != nil || len(wrote) != 7 || wrote[0] != "gradient_analysis_summary_step_11.png" {
		t.Fatalf("wrote %q, error %v; want the seven files of step 11", wrote, err)
	}
	csv, err := os.ReadFile(filepath.Join(out, "gradient_analysis_bucket_rv_table_step_11.csv"))
	if want := "bucket,group_id,reward_std,profile\nbucket_1,0,0.5,exact\nbucket_1,1,1.5,exact\nbucket_2,2,1.5,exact\nbucket_2,3,2.5,exact\n" +
		"bucket_10,4,2.5,exact\nbucket_10,5,3.5,exact\n"; string(csv) != want {
		t.Errorf("csv %q (%v), want %q", csv, err, want)
	}
	text, err := os.ReadFile(filepath.Join(out, "gradient_analysis_metrics_step_11.json"))
	if err != nil {
		t.Fatal(err)
	}
	var row map[string]any
	if err := json.Unmarshal(text, &row); err != nil {
		t.Fatal(err)
	}
	table, _ := row["grad_norm/all/group_rv_table"].(map[string]any)
	if row["step"] != 11.0 || row["grad_norm/bucket_2/task"] != 0.2 || row["actor/pg_loss"] != math.Sin(11) ||
		table["columns"] == nil {
		t.Errorf("the JSON is not the whole row: %s", text)
	}
	if !strings.HasPrefix(string(text), "{\n  \"actor/grad_norm\": ") {
		t.Errorf("the JSON starts with %.40q, want sorted keys with an indent of 2", text)
	}

	wrote, _, err = drawAll(t, dir, out, false, 11, 12, 40)
	if !errors.Is(err, ErrNotAnalysed) || len(wrote) > 0 || !strings.Contains(err.Error(), "step 12, 40") ||
		!strings.Contains(err.Error(), "analysed: 1, 11") {
		t.Errorf("wrote %q, error %v", wrote, err)
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	s := newStep("demo", metrics.Record{Step: 1, Values: analysed(true)}, postFilter)
	labels := []string{}
	for _, b := range s.whole {
		labels = append(labels, b.label)
	}
	if want := []string{"Q1", "Q2", "Q10", "all"}; !reflect.DeepEqual(labels, want) {
		t.Errorf("buckets %q, want %q", labels, want)
	}
	if f := s.norms(); len(f.Panels) != 4 || !strings.Contains(f.Caption, "not computed: KL") {
		t.Errorf("%d panels, caption %q; want two each of entropy and task, and KL named as not computed",
			len(f.Panels), f.Caption)
	}
	p := strengthPanel(s.buckets, regulariserTitle(s.buckets), regularisers, "interval")
	if p.Title != "Entropy gradient" || p.Marks[0].Label != "Entropy" {
		t.Errorf("%q, first mark %q; want the entropy alone", p.Title, p.Marks[0].Label)
	}
}

func TestTablesThatDisagreeAreNotUsed(t *testing.T) {
	values := analysed(true)
	values["grad_norm/bucket_2/reward_std_mean"] = 2.1
	list := bucketsOf(metrics.Record{Values: values}, postFilter)
	if list[0].stds() == nil || list[1].stds() != nil {
		t.Errorf("standard deviations %v and %v, want only the first", list[0].stds(), list[1].stds())
	}
	if p := stdBoxes(list); len(p.Marks) != 2 || len(p.Marks[0].X) != 3 || p.Marks[1].Y[1] != 2.1 ||
		!math.IsNaN(p.Marks[1].Y[0]) {
		t.Errorf("marks %+v; want three boxes, and a mean with its range", p.Marks)
	}
}

func TestIncompleteRuns(t *testing.T) {
	dir := writeRun(t)
	wrote, notes, err := drawAll(t, dir, filepath.Join(dir, "plots"), false)
	if err != nil || !reflect.DeepEqual(wrote, []string{"training.png"}) || len(notes) != 1 ||
		!strings.Contains(notes[0], "no step has a gradient analysis") {
		t.Errorf("without analysis: wrote %q, notes %q, error %v", wrote, notes, err)
	}
	file := filepath.Join(dir, "metrics.jsonl")
	whole, _ := os.ReadFile(file)
	if err := os.WriteFile(file, append(whole, "{broken\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if wrote, _, err = drawAll(t, dir, filepath.Join(dir, "plots"), false); err == nil || !strings.Contains(err.Error(), "metrics.jsonl:32:") ||
		len(wrote) != 1 {
		t.Errorf("broken line: wrote %q, error %v; want the training curves and an error that names line 32", wrote,
			err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err = drawAll(t, dir, filepath.Join(dir, "plots"), false); !errors.Is(err, rundir.ErrEmpty) {
		t.Errorf("empty file: %v", err)
	}
}

func TestExportedSteps(t *testing.T) {
	root := t.TempDir()
	for i, name := range []string{"a/metrics.json", "b/gradient_analysis_metrics_step_20.json", "c.json"} {
		s := newStep("", metrics.Record{Step: 10 * i, Values: analysed(false)}, postFilter)
		if err := atomicfile.Write(filepath.Join(root, name), s.writeJSON); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []StepDir{{0, filepath.Join(root, "a")}, {20, filepath.Join(root, "b")},
		{40, filepath.Join(root, "c.json")}}
	out := filepath.Join(root, "figures", "grid.png")
	f, err := ExportedSteps("PPO", dirs)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Save(out, figure.PrintDPI); err != nil {
		t.Fatal(err)
	}
	checkPNG(t, out, figure.PrintDPI)
	if err := os.WriteFile(filepath.Join(root, "c.json"), []byte(`{"step": 3, "actor/pg_loss": 1}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ExportedSteps("PPO", dirs); err == nil ||
		!strings.Contains(err.Error(), "c.json has no gradient analysis") {
		t.Errorf("a file without analysis: %v", err)
	}
}

// Norms of different procedures mean different things: they never share a figure, and every file says whose they are.
func TestProfilesAreNotMixed(t *testing.T) {
	record := func(step int, profile any) metrics.Record {
		values := analysed(true)
		delete(values, "grad_analysis/profile")
		if profile != nil {
			values["grad_analysis/profile"] = profile
		}
		return metrics.Record{Step: step, Values: values}
	}
	for _, c := range []struct {
		profiles []any
		want     string
	}{
		{[]any{"exact", "exact", "exact"}, ""}, {[]any{"paper", "paper", "paper"}, ""}, {[]any{nil, nil, nil}, ""},
		{[]any{"exact", "exact", "paper"}, "step 0 has the exact profile, step 2 the paper profile"},
		{[]any{"exact", nil, "exact"}, "step 0 has the exact profile, step 1 the profile not recorded"},
	} {
		var rows []analysis
		for i, p := range c.profiles {
			rows = append(rows, newStep("demo", record(i, p), postFilter).analysis)
		}
		f, err := compareSteps("steps", rows)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v, want %q", c.profiles, err, c.want)
			}
			continue
		}
		if want := rows[0].describe(); err != nil || !strings.HasPrefix(f.Caption, want) {
			t.Errorf("%v: caption %q (%v), want it to begin with %q", c.profiles, f.Caption, err, want)
		}
		s := newStep("demo", rows[0].record, postFilter)
		for _, f := range []figure.Figure{s.summary(), s.norms(), s.losses(), s.std(), s.normalized()} {
			if !strings.Contains(f.Caption, s.describe()) {
				t.Errorf("%v: caption %q", c.profiles, f.Caption)
			}
		}
	}
}
