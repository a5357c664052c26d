package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "gyre/envs/builtin"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/scripts/bench/report"
	"gyre/scripts/bench/work"
)

// The test binary is Gyre's worker when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerVerb {
		os.Exit(run(os.Args[1:]))
	}
	if err := os.Chdir("../.."); err != nil { // where the program is run
		panic(err)
	}
	os.Exit(m.Run())
}

func tiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	corpus, err := sft.Corpus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = policyinit.Create(dir, policyinit.Options{Family: "llama", Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1,
		Intermediate: 16, Vocab: 512, MaxPositions: 2048, Tie: true, Std: 0.02, Corpus: corpus})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// peer makes a folder of peers with a stand-in for the Python of one, which takes so many seconds for every task.
func peer(t *testing.T, name, seconds string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name, "bin", "python")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nseconds=" + seconds + `
echo '{"hello": {"program": "fake", "versions": {"fake": "1.0"}}}'
while read -r task; do
  case $task in
  *'"op":"greedy"'*) echo '{"figures": {"output": [1, 2, 3]}}' ;;
  *'"tag":"Bandit"'*) echo '{"error": "no bandit"}' ;;
  *'"counts":"resets"'*) echo '{"figures": {"seconds": 1, "tokens": 1}}' ;;
  *'"counts":"steps"'*) echo '{"figures": {"seconds": 1e-9, "tokens": 1}}' ;;
  *'"op":"update"'*) echo '{"error": "out of memory"}' ;;
  *) echo '{"figures": {"seconds": '"$seconds"', "tokens": 64, "first_seconds": 50, "later_tokens": 63}}' ;;
  esac
done
`
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// quietly runs the program with its standard output caught.
func quietly(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	caught := make(chan string)
	go func() {
		text, _ := io.ReadAll(r)
		caught <- string(text)
	}()
	stdout := os.Stdout
	os.Stdout = w
	code = run(args)
	os.Stdout = stdout
	w.Close()
	return code, <-caught
}

// A benchmark in which Gyre is too slow beside a peer fails.
func TestMissedFloorFails(t *testing.T) {
	code, out := quietly(t, "-model", tiny(t), "-threads", "1", "-repeats", "1", "-only", "logprobs", "-peers",
		"transformers",
		"-peers-dir", peer(t, "transformers", "0.000001"))
	if code != exitFailed || !strings.Contains(out, "✗") {
		t.Errorf("exit code %d, want %d\n%s", code, exitFailed, out)
	}
}

// A whole run on a tiny model: every operation of Gyre's worker, a peer that answers, one that fails and one that is
// not there, and then a check against the baseline that the run wrote.
func TestCompareAndCheck(t *testing.T) {
	model, dir := tiny(t), t.TempDir()
	file, baselines := filepath.Join(dir, "report.json"), filepath.Join(dir, "baselines")
	code, out := quietly(t, "-model", model, "-threads", "1", "-repeats", "2", "-only",
		"generate/shared,rollout,logprobs,update/unrelated,grpo",
		"-peers", "transformers,vllm", "-peers-dir", peer(t, "transformers", "100"), "-json", file, "-write-baseline", "-baselines", baselines)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	for _, want := range []string{"SKIPPED", "setup-peers.sh",
		"transformers failed at 4 × 256 unrelated: transformers: out of memory",
		"continues the test prompt differently", "turn 5"} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q:\n%s", want, out)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != 5 || r.Machine.FLOPS <= 0 || r.Machine.Bandwidth <= 0 {
		t.Errorf("%d cases, machine %+v: expected 5 and what was measured", len(r.Cases), r.Machine)
	}
	for _, c := range r.Cases {
		own := c.Samples[report.Subject]
		want := 2
		if c.Op == work.OpRollout || c.Op == work.OpGRPO {
			want = 1 // long cases are measured once less
		}
		if len(own) != want || own[want-1].Tokens == 0 {
			t.Fatalf("%s has %d samples of Gyre, expected %d", c.Name, len(own), want)
		}
		for _, s := range own {
			if s.Seconds <= 0 || s.Bounds.Total <= 0 || s.PeakBytes <= 0 {
				t.Errorf("%s: a sample without time, bound or memory: %+v", c.Name, s)
			}
		}
	}
	shared := r.Cases[0].Samples
	if speed := shared["transformers"][0].DecodeSpeed(); speed != 63.0/50 {
		t.Errorf("the peer decodes %v tokens/s, expected 63 in 50 s", speed)
	}
	if shared := shared[report.Subject][0]; shared.LaterTokens > 16*63 || shared.LaterTokens < 16*60 {
		t.Errorf("%d tokens were sampled after all had their first, expected about %d", shared.LaterTokens, 16*63)
	}

	files, _ := filepath.Glob(filepath.Join(baselines, "*.json"))
	if len(files) != 1 {
		t.Fatalf("baselines are %v, expected one", files)
	}
	arguments := []string{"check", "-model", model, "-threads", "1", "-baselines", baselines, "-only", "logprobs",
		"-repeats", "2"}
	raise := func(factor float64, peaks ...[]float64) { // of each type
		b, err := report.ReadBaseline(files[0])
		if err != nil {
			t.Fatal(err)
		}
		for i, dtype := range report.Types(report.Subject) {
			name := report.CaseIn("logprobs", dtype)
			c := b.Cases[name]
			for k := range c.Shares {
				c.Shares[k] = factor * (1 + 0.001*float64(k))
			}
			if c.Peaks = nil; i < len(peaks) {
				c.Peaks = peaks[i]
			}
			b.Cases[name] = c
		}
		if err := report.WriteJSON(files[0], b); err != nil {
			t.Fatal(err)
		}
	}
	raise(1e-9, nil, []float64{1e13, 1e13})
	if code, out := quietly(t, arguments...); code != 0 || strings.Count(out, "fine; memory") != 2 ||
		!strings.Contains(out, "the baseline has none") || !strings.Contains(out, "memory 0.00 of the baseline\n") {
		t.Errorf("against slow baselines, one without memory and one that is large: exit code %d\n%s", code, out)
	}
	raise(1e-9, []float64{1, 1}, []float64{1, 1})
	if code, out := quietly(t, arguments...); code != exitFailed ||
		strings.Count(out, "of the baseline: regression") != 2 {
		t.Errorf("against a baseline of a byte: exit code %d\n%s", code, out)
	}
	raise(1e9)
	if code, out := quietly(t, append(arguments, "-types", "f32")...); code != exitFailed ||
		!strings.Contains(out, "regression") {
		t.Errorf("against an unreachable baseline: exit code %d\n%s", code, out)
	}
	if code, _ := quietly(t, "check", "-model", model, "-baselines", dir); code != exitUsage {
		t.Errorf("without a baseline: exit code %d, expected %d", code, exitUsage)
	}
}

// Environments are timed beside RAGEN's: floors that are reached and missed, what RAGEN cannot do, and what it lacks.
func TestEnvironments(t *testing.T) {
	dir := peer(t, "ragen", "1")
	if err := os.MkdirAll(filepath.Join(dir, "ragen-source", "ragen", "env"), 0o755); err != nil {
		t.Fatal(err)
	}
	code, out := quietly(t, "-model", tiny(t), "-repeats", "1", "-only",
		"environments/FrozenLake,environments/Bandit,environments/MiniSudoku", "-peers", "ragen",
		"-peers-dir", dir)
	rows := strings.Count(out, "| gyre ")
	if code != exitFailed || rows != 7 || strings.Count(out, "≥ 50 ✓") != 1 || strings.Count(out, "≥ 20 ✗") != 1 ||
		!strings.Contains(out, "ragen failed at Bandit: resets: ragen: no bandit") {
		t.Errorf("exit code %d, %d rows of Gyre\n%s", code, rows, out)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // of the error
	}{
		{[]string{"-peers", "vlm"}, `unknown program "vlm"`},
		{[]string{"-only", "generte"}, `no case "generte"`},
		{[]string{"-threads", "0"}, "expected at least 1"},
		{[]string{"now"}, `unexpected argument "now"`},
	} {
		if _, err := parse(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v gives %v, expected %q", c.args, err, c.want)
		}
	}
	o, err := parse([]string{"-quick", "-peers", "none", "-only", "generate/1"}, io.Discard)
	if err != nil || o.repeats != 1 || len(o.peers) != 0 || !o.includes("generate/1") || o.includes("generate/16") {
		t.Errorf("options are %+v (%v)", o, err)
	}
	if o, err := parse([]string{"check"}, io.Discard); err != nil || o.repeats != 5 {
		t.Errorf("a check has %d repeats (%v), expected 5", o.repeats, err)
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-help"}, &help); err == nil || !strings.Contains(help.String(), "-quick") {
		t.Errorf("help is %q", help.String())
	}
}
