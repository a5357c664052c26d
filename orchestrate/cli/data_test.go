package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/internal/atomicfile"
	"gyre/internal/exitcode"
	"gyre/orchestrate/model/chat"
)

// GSM8K's own answers end in "#### NUMBER": prepared rows hold the number alone, ask for that form, and say where they
// come from.
func TestPrepareGSM8K(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train": `{"question":"One and two?","answer":"1+2=3\n#### 3"}` + "\n" +
			`{"question":"Money?","answer":"a lot\n#### 1,200"}`,
		"test": `{"question":"Two?","answer":"#### 2"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	if code, stdout, stderr := with(t, "", "data", "prepare", "gsm8k", "--input", dir, "--output", out); code != 0 ||
		!strings.Contains(stdout, "2 rows for training, 1 held out") {
		t.Fatalf("exit %d, %s%s", code, stdout, stderr)
	}
	for _, ending := range []string{".parquet", ".jsonl"} {
		code, stdout, stderr := with(t, "", "data", "show", filepath.Join(out, "train"+ending), "--rows", "0", "--json")
		if code != 0 {
			t.Fatal(stderr)
		}
		var golds []string
		for line := range strings.Lines(stdout) {
			var row struct {
				Gold   string
				Source string
				Prompt []struct{ Role, Content string }
			}
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			if golds = append(golds, row.Gold); !strings.Contains(row.Source, "gsm8k") || len(row.Prompt) != 1 ||
				!strings.Contains(row.Prompt[0].Content, "####") {
				t.Errorf("%s: %+v", ending, row)
			}
		}
		if fmt.Sprint(golds) != "[3 1200]" {
			t.Errorf("%s: answers %q", ending, golds)
		}
	}
	var about []struct {
		Name    string
		Sources map[string]string
		Rows    map[string]int
	}
	text, err := os.ReadFile(filepath.Join(out, "dataset.json"))
	if err != nil || json.Unmarshal(text, &about) != nil || len(about) != 1 ||
		len(about[0].Sources["train.jsonl"]) != 64 || about[0].Rows["test"] != 1 {
		t.Errorf("dataset.json: %s, %v", text, err)
	}
	for _, c := range []struct{ line, want string }{
		{"--split all --input " + dir, "--split is math500's"},
		{"--input " + filepath.Join(dir, "test.jsonl"), "gsm8k needs both of its files"},
		{"--answer-format latex --input " + dir, "expected boxed or hash"},
	} {
		args := append([]string{"data", "prepare", "gsm8k", "--output", filepath.Join(dir, "none")},
			strings.Fields(c.line)...)
		if code, _, stderr := with(t, "", args...); code != exitcode.Usage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: exit %d, %s", c.line, code, stderr)
		}
	}
	if atomicfile.Exists(dir, "none") {
		t.Error("a refused command wrote something")
	}
}

// Prompts are as long as the model's tokenizer and chat template make them, for gyre data check and for the environment
// alike.
func TestPromptsAreMeasuredInTokens(t *testing.T) {
	model, file := tokenizerDir(t), filepath.Join(t.TempDir(), "p.jsonl")
	const short, long = "hello", "hello hello hello hello hello hello"
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"question":%q,"answer":"1"}`+"\n"+`{"question":%q,"answer":"2"}`,
		short, long), 0o644); err != nil {
		t.Fatal(err)
	}
	lengths := map[string]int{}
	for _, text := range []string{short, long} {
		_, ids, _ := tokenizeRows(fmt.Sprintf(`{"messages": [{"role": "user", "content": %q}]}`, text), "--model",
			model)
		var row struct{ IDs []int }
		if err := json.Unmarshal([]byte(ids), &row); err != nil {
			t.Fatal(ids, err)
		}
		lengths[text] = len(row.IDs)
	}
	if lengths[short] == 0 || lengths[short] >= lengths[long] {
		t.Fatal(lengths)
	}
	code, stdout, stderr := with(t, "", "data", "check", file, "--model", model, "--json", "--max-prompt",
		fmt.Sprint(lengths[short]))
	var report struct {
		Shortest int    `json:"prompt_min"`
		Longest  int    `json:"prompt_max"`
		Unit     string `json:"prompt_unit"`
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Shortest != lengths[short] ||
		report.Longest != lengths[long] || report.Unit != "tokens" {
		t.Errorf("%+v, expected %v: %v", report, lengths, err)
	}
	if code != exitcode.Failed || !strings.Contains(stderr,
		fmt.Sprintf("the longest prompt has %d tokens, more than %d", lengths[long], lengths[short])) {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr := with(t, "", "data", "check", file, "--model", t.TempDir()); code != exitcode.Usage ||
		!strings.Contains(stderr, "tokenizer.json") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	spec, err := envs.Lookup("dataset")
	if err != nil {
		t.Fatal(err)
	}
	options := map[string]any{"file": file, "tokenizer": model, "max_prompt_length": lengths[short], "shuffle": false}
	spec.CountTokens = chat.CountTokens
	env, err := spec.Make(options)
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	for seed := int64(10000); seed < 10003; seed++ { // one row is left, whatever the seed
		if _, err := env.Reset(context.Background(), seed, 0); err != nil || env.Observe().Text != short {
			t.Errorf("seed %d shows %q, %v", seed, env.Observe(), err)
		}
	}
}

// What is missing in a file, and what reading left out of it, is named with its rows.
func TestDataCheckNamesRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.jsonl")
	if err := os.WriteFile(file, []byte(`{"question":"a","answer":"#### 42 apples"}
{"question":null,"answer":"1"}
{"question":"b","answer":null}
{"question":"c","answer":"work\n####"}
{"question":"d","answer":5.0}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := with(t, "", "data", "check", file)
	for _, want := range []string{"rows              5\n", "without question  1 rows 1\n", "without answer    2 rows 2, 3\n",
		"text left out     1 rows 0\n", "answers unscored  0"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	if code != exitcode.Failed || !strings.Contains(stderr, "1 have no question (rows 1); 2 have no answer (rows 2, 3)") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	_, stdout, stderr = with(t, "", "data", "show", file, "--from", "2", "--rows", "1")
	if !strings.Contains(stdout, "\nrow 2, ") || !strings.Contains(stderr, "1 of 5 rows have no question") {
		t.Errorf("rows from 2 on: %s%s", stdout, stderr)
	}
	if _, stdout, _ = with(t, "", "grade", "--audit", file); !strings.Contains(stdout, `{"row":3,"id":"3"`) {
		t.Errorf("audit: %s", stdout)
	}
	for reply, want := range map[string]string{"#### $42.0": "success, return 1", "42": "success, return 1",
		"#### 42 pears": "failed, return 0"} {
		_, stdout, stderr := env(reply+"\n", "play", "Dataset", "--seed", "10000", "file="+file, "shuffle=false")
		if !strings.Contains(stdout, want) {
			t.Errorf("%q: %s%s", reply, stdout, stderr)
		}
	}
}

// MetaMathQA's file becomes what the environment of that name asks; rows without an answer are left out.
func TestPrepareMetaMathQA(t *testing.T) {
	dir := t.TempDir()
	input, out := filepath.Join(dir, "MetaMathQA-395K.json"), filepath.Join(dir, "out")
	rows := `[{"query": "Two and two?", "response": "Add.\nThe answer is: 4", "type": "GSM_AnsAug"}, {"query": "Why?", "response": "Nobody knows."}]`
	if err := os.WriteFile(input, []byte(rows), 0o644); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := with(t, "", "data", "prepare", "metamathqa", "--input", input, "--output", out)
	if code != 0 || !strings.Contains(stdout, "1 rows for training, 0 held out") {
		t.Fatalf("exit %d, %s%s", code, stdout, stderr)
	}
	for _, ending := range []string{".parquet", ".jsonl"} {
		code, stdout, stderr := env("4\n", "play", "MetamathQA", "problems="+filepath.Join(out, "train"+ending))
		if code != 0 || !strings.Contains(stdout, "Two and two?") || !strings.Contains(stdout, "success") {
			t.Errorf("%s: exit %d, %s%s", ending, code, stdout, stderr)
		}
	}
	if code, _, stderr := with(t, "", "data", "prepare", "metamathqa", "--input", input, "--split", "all"); code != 2 ||
		!strings.Contains(stderr, "math500 and gsm8k") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if code, _, stderr := env("", "play", "MetamathQA", "problems=missing.jsonl"); code == 0 ||
		!strings.Contains(stderr, "gyre data prepare metamathqa") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
