package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
	"gyre/orchestrate/loop/generation"
)

// onRows runs score or generate on lines of input.
func onRows(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	app := newApp([]*cli.Command{scoreCommand(), generateCommand()}, &out, &errs)
	app.Reader = strings.NewReader(input)
	code = run(context.Background(), app, append([]string{"gyre"}, args...))
	return code, out.String(), errs.String()
}

// results runs a command that has to succeed and decodes its lines.
func results[T any](t *testing.T, input string, args ...string) []T {
	t.Helper()
	code, stdout, stderr := onRows(t, input, args...)
	if code != 0 {
		t.Fatalf("gyre %s: exit %d: %s", strings.Join(args, " "), code, stderr)
	}
	var all []T
	for line := range strings.Lines(stdout) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

const threeForms = `{"ids": [5, 6, 7, 8]}

{"text": "push the box <b>"}
{"messages": [{"role": "user", "content": "Up or Down?"}]}
{"ids": [9]}
`

func TestGeneratedLogprobsAreScoresOfTheWholeRow(t *testing.T) {
	model := tinyPolicy(t)
	flags := []string{"--model", model, "--temperature", "0.7", "--max-tokens", "12", "--ignore-eos", "--seed", "3"}
	replies := results[generated](t, threeForms, append([]string{"generate"}, flags...)...)
	prompts := results[scored](t, threeForms, "score", "--model", model)
	if len(replies) != 4 || len(prompts) != 4 {
		t.Fatalf("%d replies and %d scores for 4 rows", len(replies), len(prompts))
	}
	if !slices.Equal(prompts[0].IDs, []int32{5, 6, 7, 8}) || prompts[0].Logprobs[0] != nil ||
		prompts[0].Logprobs[1] == nil {
		t.Errorf("score of given ids: %+v", prompts[0])
	}
	var whole strings.Builder
	for i, r := range replies {
		if len(r.IDs) != 12 || r.FinishReason != "length" || r.Text == nil {
			t.Errorf("row %d: %d tokens, finish_reason %q, text %v; want 12, length and a text", i, len(r.IDs),
				r.FinishReason, r.Text)
		}
		json.NewEncoder(&whole).Encode(map[string]any{"ids": slices.Concat(prompts[i].IDs, r.IDs)})
	}
	for i, s := range results[scored](t, whole.String(), "score", "--model", model, "--temperature", "0.7") {
		for j, want := range s.Logprobs[len(prompts[i].IDs):] {
			if got := replies[i].Logprobs[j]; got != *want {
				t.Errorf("row %d, new token %d: generate says %v, score %v", i, j, got, *want)
			}
		}
	}
}

func TestGenerateDoesNotDependOnTheBatch(t *testing.T) {
	model := tinyPolicy(t)
	input := strings.Repeat(threeForms, 4)
	var first string
	for _, batch := range []string{"1", "3", "100"} {
		code, stdout, stderr := onRows(t, input, "generate", "--model", model, "--max-tokens", "9", "--top-p", "0.95",
			"--batch", batch)
		if code != 0 {
			t.Fatal(stderr)
		}
		if first == "" {
			first = stdout
		}
		if stdout != first {
			t.Errorf("--batch %s gives other results than --batch 1", batch)
		}
	}
	lines := strings.Split(first, "\n")
	if lines[0] == lines[4] {
		t.Error("rows with the same prompt got the same draws")
	}
}

func TestGenerateStops(t *testing.T) {
	model := tinyPolicy(t)
	flags := []string{"generate", "--model", model, "--max-tokens", "30", "--ignore-eos", "--temperature", "0"}
	row := `{"text": "a"}`
	free := results[generated](t, row, flags...)[0]
	stop := (*free.Text)[1:3]
	stopped := results[generated](t, row, append(flags, "--stop", "no, such text", "--stop", stop)...)[0]
	if stopped.FinishReason != "stop" || !strings.Contains(*stopped.Text, stop) || len(stopped.IDs) > len(free.IDs) ||
		!slices.Equal(stopped.IDs, free.IDs[:len(stopped.IDs)]) {
		t.Errorf("--stop %q: %q (%s), without: %q", stop, *stopped.Text, stopped.FinishReason, *free.Text)
	}
	// Space around a stop string is part of it: this one is nowhere, without the space it would be.
	text, ids := "", []int32{}
	pieces := results[grown](t, row, append(flags, "--stop", stop, "--stream")...)
	for i, p := range pieces {
		text, ids = text+p.Text, append(ids, p.IDs...)
		if p.Row != 0 || p.Last != (i == len(pieces)-1) {
			t.Errorf("piece %d: %+v", i, p)
		}
	}
	if !slices.Equal(ids, stopped.IDs) || !strings.HasPrefix(*stopped.Text, text) || strings.Contains(text, stop) ||
		len(pieces) < 3 {
		t.Errorf("streamed %v %q in %d pieces, want %v and the text before %q", ids, text, len(pieces), stopped.IDs,
			stop)
	}
	if got := results[generated](t, row, append(flags, "--stop", stop+"\n \n")...)[0]; !slices.Equal(got.IDs,
		free.IDs) {
		t.Errorf("--stop %q: %q (%s)", stop+"\n \n", *got.Text, got.FinishReason)
	}
	results[generated](t, row, append(flags, "--stop", "\n")...)
}

func TestIDsNeedNoTokenizer(t *testing.T) {
	source, bare := tinyPolicy(t), t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bare, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	row := `{"ids": [5, 6]}`
	with := results[generated](t, row, "generate", "--model", source, "--max-tokens", "5", "--ignore-eos")[0]
	without := results[generated](t, row, "generate", "--model", bare, "--max-tokens", "5", "--ignore-eos")[0]
	if without.Text != nil || !slices.Equal(with.IDs, without.IDs) {
		t.Errorf("without a tokenizer: %+v, with: %+v", without, with)
	}
	if err := os.WriteFile(filepath.Join(bare, "tokenizer.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := onRows(t, row, "generate", "--model", bare, "--max-tokens", "5"); code != 0 ||
		stdout == "" ||
		!strings.Contains(stderr, "no text") {
		t.Errorf("a broken tokenizer and rows of ids: exit %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr := onRows(t, `{"text": "a"}`, "score", "--model", bare); code == 0 ||
		!strings.Contains(stderr, "tokenizer.json") {
		t.Errorf("a text without a tokenizer: exit %d, %q", code, stderr)
	}
}

func TestBadRowsAreNamedBeforeAnyResult(t *testing.T) {
	model := tinyPolicy(t)
	for row, want := range map[string]string{
		`{"ids": [1, 2`:                        "not a JSON object",
		`[1, 2]`:                               "not a JSON object",
		`{"token_ids": [1]}`:                   `expected one of ids, text and messages, got ["token_ids"]`,
		`{"ids": [1], "text": "a"}`:            `exactly one of ids, text and messages, got ["ids" "text"]`,
		`{"ids": []}`:                          "one or more token ids",
		`{"ids": [1.5]}`:                       "ids: expected a list",
		`{"ids": [1, 99999999999]}`:            "ids: expected a list",
		`{"ids": [1, 99999]}`:                  "token 1 is 99999",
		`{"ids": [-1]}`:                        "token 0 is -1",
		`{"text": 3}`:                          "text: expected a string, got 3",
		`{"text": null}`:                       "text: expected a string, got null",
		`{"text": ""}`:                         "no tokens",
		`{"messages": []}`:                     "messages: expected a list",
		`{"ids": [1], "nonsense": 1}`:          `there is no key "nonsense" of rows: expected ids, and beside it tools`,
		`{"text": "a", "tools": []}`:           "tools: is for the chat template, which writes messages, got text",
		`{"messages": "hello"}`:                "messages: expected a list",
		`{"messages": [{"content": "hello"}]}`: "message 0 has no role",
	} {
		for _, verb := range []string{"score", "generate"} {
			code, stdout, stderr := onRows(t, "{\"ids\": [1, 2]}\n\n"+row+"\n", verb, "--model", model)
			if code != exitcode.Usage || stdout != "" || !strings.Contains(stderr, "stdin line 3") ||
				!strings.Contains(stderr, want) {
				t.Errorf("%s of %s: exit %d, stdout %q, stderr %q; want exit 2, line 3 and %q", verb, row, code, stdout,
					stderr, want)
			}
		}
	}
	if code, _, stderr := onRows(t, "\n \n", "score", "--model", model); code != exitcode.Usage ||
		!strings.Contains(stderr, "no rows") {
		t.Errorf("no rows: exit %d, %q", code, stderr)
	}
	long := `{"ids": [1` + strings.Repeat(", 1", 1<<17) + "]}"
	for _, verb := range []string{"score", "generate"} {
		code, _, stderr := onRows(t, long, verb, "--model", model)
		if code != exitcode.Usage || !strings.Contains(stderr, "line 1") || !strings.Contains(stderr, "positions") {
			t.Errorf("%s of a row longer than the model: exit %d, %q", verb, code, stderr)
		}
	}
	if code, _, stderr := onRows(t, `{"ids": [1]}`, "score", "--model", "no/such/dir"); code != exitcode.Usage ||
		!strings.Contains(stderr, "--model: no/such/dir") {
		t.Errorf("no such model: exit %d, %q", code, stderr)
	}
}

func TestBadSamplingFlags(t *testing.T) {
	for line, want := range map[string]string{
		"score --temperature 0":                  "--temperature",
		"generate --temperature -1":              "--temperature",
		"generate --temperature NaN":             "--temperature",
		"generate --top-k -1":                    "--top-k",
		"generate --top-p 0":                     "--top-p",
		"generate --min-p 1.5":                   "--min-p",
		"generate --max-tokens 0":                "--max-tokens",
		"generate --min-tokens 5 --max-tokens 4": "--min-tokens",
		"generate --batch 0":                     "--batch",
		"generate --stop=":                       "--stop",
		"generate --input no/such/file":          "--input",
		"generate --seed -1":                     "seed",
	} {
		args := append(strings.Fields(line), "--model", tinyPolicy(t))
		code, stdout, stderr := onRows(t, `{"ids": [1]}`, args...)
		if code != exitcode.Usage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("gyre %s: exit %d, stdout %q, stderr %q; want exit 2 and %q", line, code, stdout, stderr, want)
		}
	}
}

func TestRowSeedsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(10) {
		for i := range 100 {
			seen[generation.RowSeed(seed, i)] = true
		}
	}
	if len(seen) != 1000 {
		t.Errorf("%d different seeds of 1000", len(seen))
	}
}

// Replies end at every id of generation_config.json, however it is spelt, and not before --min-tokens.
func TestGenerateStopsAtTheConfiguredIDs(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tinyPolicy(t))); err != nil {
		t.Fatal(err)
	}
	row := `{"ids": [5, 6]}`
	flags := []string{"generate", "--model", dir, "--max-tokens", "12", "--temperature", "0"}
	free := results[generated](t, row, append(flags, "--ignore-eos")...)[0]
	for _, spelling := range []string{"%d", "[299, %d]", "[%d]"} {
		end := free.IDs[len(free.IDs)-1]
		text := fmt.Sprintf(`{"eos_token_id": `+spelling+`}`, end)
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		first := slices.Index(free.IDs, end) + 1
		got := results[generated](t, row, flags...)[0]
		if got.FinishReason != "stop" || !slices.Equal(got.IDs, free.IDs[:first]) {
			t.Errorf("%s: %v (%s), want %v", text, got.IDs, got.FinishReason, free.IDs[:first])
		}
		if got := results[generated](t, row, append(flags, "--min-tokens", "12")...)[0]; len(got.IDs) != 12 ||
			slices.Contains(got.IDs[:11], end) {
			t.Errorf("%s with --min-tokens 12: %v", text, got.IDs)
		}
	}
}
