package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// analysisMetrics are the numbers that an analysis makes, of a metrics line or of --json.
func analysisMetrics(values map[string]any) map[string]float64 {
	out := map[string]float64{}
	for name, v := range values {
		if number, ok := v.(float64); ok && (strings.HasPrefix(name, "grad_norm") ||
			strings.HasPrefix(name, "actor/loss/")) {
			out[name] = number
		}
	}
	return out
}

func probe(t *testing.T, dir string, args ...string) map[string]any {
	t.Helper()
	stdout := mustIn(t, dir, append([]string{"analyze"}, append(args, "--json")...)...)
	var values map[string]any
	if err := json.Unmarshal([]byte(stdout), &values); err != nil {
		t.Fatalf("%v in %q", err, stdout)
	}
	return values
}

func sameAnalysis(t *testing.T, want, got map[string]any) {
	t.Helper()
	a, b := analysisMetrics(want), analysisMetrics(got)
	if len(a) < 20 {
		t.Fatalf("the run logged %d analysis metrics", len(a))
	}
	for name, v := range a {
		if w, ok := b[name]; !ok || w != v {
			t.Errorf("%s = %v, the run logged %v", name, w, v)
		}
	}
}

// contents maps every file below a folder to what it holds.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out[path] = string(readFile(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// csvOf writes columns of a logged table, and the profile, as CSV.
func csvOf(t *testing.T, logged any, columns string) string {
	t.Helper()
	var table struct {
		Columns []string
		Rows    [][]any
	}
	data, err := json.Marshal(logged)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) < 2 {
		t.Fatalf("a table of %d groups", len(table.Rows))
	}
	out := columns + ",profile\n"
	for _, row := range table.Rows {
		for _, name := range strings.Split(columns, ",") {
			out += fmt.Sprint(row[slices.Index(table.Columns, name)]) + ","
		}
		out += "exact\n"
	}
	return out
}

// What the run logged at a step comes out again, bit for bit, from the checkpoint before it: from the saved episodes,
// and played again.
func TestProbeRepeatsTheRun(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=3", "checkpoint.keep=0")
	logged := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))[3]
	var saved map[string]any
	if err := json.Unmarshal(readFile(t, filepath.Join(dir,
		"runs/tiny/analysis/gradient_analysis_metrics_step_3.json")), &saved); err != nil {
		t.Fatal(err)
	}
	sameAnalysis(t, logged, saved)
	if saved["grad_analysis/profile"] != "exact" || saved["step"] != 3.0 {
		t.Errorf("the step's file says profile %v, step %v", saved["grad_analysis/profile"], saved["step"])
	}
	table := readFile(t, filepath.Join(dir, "runs/tiny/analysis/gradient_analysis_group_table_step_3.csv"))
	if want := csvOf(t, saved["grad_norm/group_table"],
		"bucket,group_id,reward_std,episodes,task,entropy"); string(table) != want {
		t.Errorf("the group table is\n%s\nwant\n%s", table, want)
	}
	// The table of spreads is one file, whoever writes it.
	spreads := readFile(t, filepath.Join(dir, "runs/tiny/analysis/gradient_analysis_bucket_rv_table_step_3.csv"))
	if want := csvOf(t, saved["grad_norm/group_table"], "bucket,group_id,reward_std"); string(spreads) != want {
		t.Errorf("the table of spreads is\n%s\nwant\n%s", spreads, want)
	}
	mustIn(t, dir, "plot", "runs/tiny", "--step", "3", "--dpi", "40", "--output-dir", "drawn")
	if drawn := readFile(t, filepath.Join(dir,
		"drawn/gradient_analysis_bucket_rv_table_step_3.csv")); string(drawn) != string(spreads) {
		t.Errorf("gyre plot writes\n%s\nand the run wrote\n%s", drawn, spreads)
	}
	before := contents(t, dir)
	sameAnalysis(t, logged, probe(t, dir, config, "--checkpoint", "runs/tiny/global_step_2", "--rollouts",
		"runs/tiny/rollouts/step_3.jsonl"))
	played := probe(t, dir, config, "--checkpoint", "runs/tiny/global_step_2", "--step", "3")
	sameAnalysis(t, logged, played)
	for name, want := range map[string]any{"trainer/gradient_analysis_only": 1.0,
		"trainer/exited_after_gradient_analysis": 1.0,
		"grad_analysis/uses_training_batch":      logged["grad_analysis/uses_training_batch"]} {
		if played[name] != want {
			t.Errorf("%s = %v, want %v", name, played[name], want)
		}
	}
	after := contents(t, dir)
	if len(after) != len(before) {
		t.Errorf("the probe left %d files, there were %d", len(after), len(before))
	}
	for path, data := range before {
		if after[path] != data {
			t.Errorf("the probe changed %s", path)
		}
	}
}

// The same for a separate analysis batch, which is scored by the critic as it is after the step.
func TestProbeRepeatsASeparateBatch(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	separate := []string{"analysis.groups=3", "analysis.group_size=3", "analysis.log_prefilter=true",
		"filter.strategy=top_k", "filter.value=0.7", "algorithm.kl_coef=0.01"}
	mustIn(t, dir, append([]string{"train", config, "run.steps=3", "checkpoint.keep=0"}, separate...)...)
	logged := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))[3]
	got := probe(t, dir, append(append([]string{config}, separate...), "--checkpoint", "runs/tiny/global_step_2",
		"--critic", "runs/tiny/global_step_3",
		"--rollouts", "runs/tiny/rollouts/analysis_3.jsonl")...)
	sameAnalysis(t, logged, got)
	if _, ok := got["grad_norm_prefilter/all/kl"]; !ok {
		t.Error("the analysis before the filter is missing")
	}
}

// A run directory means its newest checkpoint, a plain Hugging Face directory works without tokenizer files, and
// --output can be drawn.
func TestProbeFindsCheckpoints(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	mustIn(t, dir, "train", config, "run.steps=2", "analysis.enabled=false")
	episodes := "runs/tiny/rollouts/step_2.jsonl"
	bare := filepath.Join(dir, "bare")
	if err := os.Mkdir(bare, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.json", "model.safetensors"} {
		if err := os.WriteFile(filepath.Join(bare, name),
			readFile(t, filepath.Join(dir, "runs/tiny/global_step_2/actor", name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var results []map[string]any
	for _, checkpoint := range []string{"runs/tiny", "runs/tiny/global_step_2", "bare"} {
		results = append(results, probe(t, dir, config, "algorithm.advantage=grpo", "--checkpoint", checkpoint,
			"--rollouts", episodes))
	}
	sameAnalysis(t, results[0], results[1])
	sameAnalysis(t, results[0], results[2])

	stdout := mustIn(t, dir, "analyze", config, "--checkpoint", "runs/tiny", "--with-val", "--output", "probe")
	if !strings.Contains(stdout, "bucket_1") || !strings.Contains(stdout, "exact profile") {
		t.Errorf("the table is missing:\n%s", stdout)
	}
	for line := range strings.Lines(stdout) {
		if n := utf8.RuneCountInString(line) - 1; n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	values := steadyMetrics(t, filepath.Join(dir, "probe/metrics.jsonl"))[2]
	if _, ok := values["val-env/sokoban/success"]; !ok {
		t.Error("--with-val logged no validation")
	}
	table := readFile(t, filepath.Join(dir, "probe/analysis/gradient_analysis_bucket_rv_table_step_2.csv"))
	if want := csvOf(t, values["grad_norm/group_table"], "bucket,group_id,reward_std"); string(table) != want {
		t.Errorf("the table of spreads is\n%s\nwant\n%s", table, want)
	}
	mustIn(t, dir, "plot", "probe", "--dpi", "40")
	if code, _, stderr := runIn(t, dir, "analyze", config, "--checkpoint", "runs/tiny", "--output",
		"probe"); code != 1 || !strings.Contains(stderr, "already holds step 2") {
		t.Errorf("a second probe of the step: exit code %d, %s", code, stderr)
	}
}

func TestProbeOutcomes(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, "")
	write := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	row := func(group, reward string) string {
		return `{"group": ` + group + `, "ids": [5, 6, 7, 8], "mask": [0, 0, 1, 1], "rewards": [[3, ` + reward + `]]}`
	}
	several := write("several.jsonl", row("0", "1"), row("0", "2"), row("1", "1"), row("1", "2"), row("2", "1"),
		row("2", "2"))
	one := write("one.jsonl", row("0", "1"), row("0", "2"))
	flat := write("flat.jsonl", row("0", "1"), row("0", "1"), row("1", "1"), row("1", "1"))
	single := write("single.jsonl", row("0", "1"), row("1", "1"))
	broken := write("broken.jsonl", row("0", "NaN"), row("0", "1"))
	far := write("far.jsonl", row("0", "1"), row("0", "7.5"), row("1", "1"), row("1", "1.5"))
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string // in stderr, or in stdout where the code is 0
		code       int
		args       []string
	}{
		{"fewer groups than buckets", "3 buckets of one group", 0, []string{"--rollouts", several}},
		{"one group", "bucket_1", 0, []string{"--rollouts", one}},
		{"equal spreads", "follow the order of groups", 0, []string{"--rollouts", several, "analysis.num_buckets=2"}},
		{"no spread at all", "|task|", 0, []string{"--rollouts", flat}},
		{"an empty bucket", "bucket_5", 0, []string{"--rollouts", far, "analysis.buckets=fixed_rv"}},
		{"an empty selection", "the filter kept none of 4 episodes", 1,
			[]string{"--rollouts", flat, "filter.include_zero=false"}},
		{"groups of one", "at least two", 1, []string{"--rollouts", single}},
		{"a NaN reward", "broken.jsonl:1", 1, []string{"--rollouts", broken}},
		{"paper", "paper profile", 0, []string{"--rollouts", several, "analysis.profile=paper"}},
		{"paper that does not divide", "paper_micro_batch", 2,
			[]string{"--rollouts", several, "analysis.profile=paper", "analysis.paper_micro_batch=3"}},
		{"no such path", "not a checkpoint", 2, []string{"--checkpoint", filepath.Join(dir, "nowhere")}},
		{"an empty folder", "not a checkpoint", 2, []string{"--checkpoint", empty}},
		{"a file", "not a checkpoint", 2, []string{"--checkpoint", several}},
		{"no such episodes", "nowhere.jsonl", 2, []string{"--rollouts", "nowhere.jsonl"}},
	} {
		code, stdout, stderr := runIn(t, dir, append([]string{"analyze", config}, c.args...)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s%s", c.name, code, c.code, c.want, stdout, stderr)
		}
	}
}
