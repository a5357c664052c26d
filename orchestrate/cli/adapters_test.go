package cli

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/internal/exitcode"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/model/checkpoint/weights"
)

// randomAdapter writes an adapter beside tinyPolicy's queries. Another seed gives another rank, scale and weights.
func randomAdapter(t *testing.T, seed uint64) string {
	t.Helper()
	rank, rng := int64(1+seed), rand.New(rand.NewPCG(seed, 0))
	var list []weights.Source
	for layer := range 2 {
		for letter, shape := range map[string][]int64{"A": {rank, 16}, "B": {16, rank}} {
			list = append(list, weights.Source{
				Name:  fmt.Sprintf("model.layers.%d.self_attn.q_proj.lora_%s.weight", layer, letter),
				DType: weights.F32, Shape: shape,
				Fill: func(dst []byte) error {
					for i := 0; i < len(dst); i += 4 {
						binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(float32(rng.NormFloat64())))
					}
					return nil
				}})
		}
	}
	dir := t.TempDir()
	if err := peft.Save(dir, peft.Config{Base: tinyPolicy(t), Rank: rank, Alpha: 8, Targets: []string{"q_proj"}},
		list); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Rows of two adapters and of the base in one file have byte for byte the results that runs with one of them have, and
// an adapter beside its base those of its directory as a model.
func TestRowsOfAdaptersAreThoseOfSeparateRuns(t *testing.T) {
	base, first, second := tinyPolicy(t), randomAdapter(t, 1), randomAdapter(t, 2)
	names := []string{"", "first", "second", "first", "", "second", "second"}
	var plain, mixed strings.Builder
	for i, name := range names {
		row := map[string]any{"ids": []int{5, 6, 7 + i%2, 8, 9}}
		json.NewEncoder(&plain).Encode(row)
		if name != "" {
			row["adapter"] = name
		}
		json.NewEncoder(&mixed).Encode(row)
	}
	lines := func(input string, args ...string) []string {
		t.Helper()
		code, stdout, stderr := onRows(t, input, args...)
		if code != 0 {
			t.Fatalf("gyre %s: exit %d: %s", strings.Join(args, " "), code, stderr)
		}
		return slices.Collect(strings.Lines(stdout))
	}
	for _, verb := range [][]string{{"score"}, {"generate", "--max-tokens", "9", "--ignore-eos"},
		{"score", "--dtype", "bfloat16"}, {"generate", "--max-tokens", "9", "--ignore-eos", "--dtype", "bfloat16"}} {
		with := func(args ...string) []string { return slices.Concat(verb, []string{"--model", base}, args) }
		alone := map[string][]string{"": lines(plain.String(), with()...),
			"first":  lines(plain.String(), with("--adapter", first)...),
			"second": lines(plain.String(), with("--adapter", second)...)}
		together := lines(mixed.String(), with("--adapter", "first="+first, "--adapter", "second="+second)...)
		if len(together) != len(names) {
			t.Fatalf("%v: %d results of %d rows", verb, len(together), len(names))
		}
		for i, got := range together {
			if want := alone[names[i]][i]; got != want {
				t.Errorf("%v: row %d of %q gives %swith others, %salone", verb, i, names[i], got, want)
			}
		}
		for i, name := range []string{"", "first", "second"} {
			if other := []string{"first", "second", ""}[i]; slices.Equal(alone[name], alone[other]) {
				t.Errorf("%v: %q and %q give the same", verb, name, other)
			}
		}
		if verb[0] == "score" {
			asModel := slices.Concat(verb, []string{"--model", first})
			if got := lines(plain.String(), asModel...); !slices.Equal(got, alone["first"]) {
				t.Errorf("%v: --adapter differs from --model of the adapter's directory", verb)
			}
		}
	}
}

func TestBadAdaptersAreNamed(t *testing.T) {
	base, adapter := tinyPolicy(t), randomAdapter(t, 1)
	for _, x := range []struct{ row, flags, want string }{
		{`{"ids": [1], "adapter": "frist"}`, "--adapter first=" + adapter + " --adapter other=" + adapter,
			`stdin line 2: adapter: no adapter has the name "frist" (did you mean first?): those of --adapter are first, other`},
		{`{"ids": [1], "adapter": "first"}`, "", `line 2: adapter: no adapter has the name "first", or any name`},
		{`{"ids": [1], "adapter": "first"}`, "--adapter " + adapter, "line 2: adapter: no adapter"},
		{`{"ids": [1], "adapter": 3}`, "--adapter first=" + adapter, "line 2: adapter: expected the name"},
		{`{"ids": [1]}`, "--adapter " + adapter + " --adapter b=" + adapter, "give it a name"},
		{`{"ids": [1]}`, "--adapter a=" + adapter + " --adapter a=" + adapter, `two adapters have the name "a"`},
		{`{"ids": [1]}`, "--adapter a=", "expected DIR or NAME=DIR"},
		{`{"ids": [1]}`, "--adapter no/such/dir", "--adapter: no/such/dir: no adapter"},
	} {
		for _, verb := range []string{"score", "generate"} {
			code, stdout, stderr := onRows(t, "{\"ids\": [1]}\n"+x.row,
				slices.Concat([]string{verb, "--model", base}, strings.Fields(x.flags))...)
			if code != exitcode.Usage || stdout != "" || !strings.Contains(stderr, x.want) {
				t.Errorf("%s of %s with %s: exit %d, stdout %q, stderr %q; want exit 2 and %q", verb, x.row, x.flags, code,
					stdout, stderr, x.want)
			}
		}
	}
	if code, _, stderr := onRows(t, `{"ids": [1]}`, "score", "--model", adapter, "--adapter", adapter); code == 0 ||
		!strings.Contains(stderr, "is an adapter itself") {
		t.Errorf("an adapter beside an adapter: exit %d, %q", code, stderr)
	}
}

// Without --dtype the type is that of the adapters' runs, which have to agree.
func TestAdaptersOfRunsInTwoTypes(t *testing.T) {
	base, flags := tinyPolicy(t), []string{"score", "--model", tinyPolicy(t)}
	for i, dtype := range []string{"bfloat16", "float32"} {
		dir := randomAdapter(t, uint64(i))
		info := fmt.Sprintf(`{"device": "cpu, %s"}`, dtype)
		if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(info), 0o600); err != nil {
			t.Fatal(err)
		}
		row, alone := `{"ids": [5, 6, 7]}`, []string{"score", "--model", base, "--adapter", dir}
		_, auto, _ := onRows(t, row, alone...)
		if _, given, _ := onRows(t, row, append(alone, "--dtype", dtype)...); auto != given || auto == "" {
			t.Errorf("an adapter of a run in %s scores %q, with --dtype %q", dtype, auto, given)
		}
		flags = append(flags, "--adapter", dtype+"="+dir)
	}
	if code, _, stderr := onRows(t, `{"ids": [5]}`, flags...); code != exitcode.Usage ||
		!strings.Contains(stderr, "choose one type for all rows with --dtype") {
		t.Errorf("adapters of runs in two types: exit %d, %q", code, stderr)
	}
	results[scored](t, `{"ids": [5], "adapter": "float32"}`, append(flags, "--dtype", "float32")...)
}

// The adapter of a checkpoint beside model.path plays as the checkpoint does. One that is not of a run needs PEFT's two
// files only.
func TestEvalOfAnAdapter(t *testing.T) {
	dir := t.TempDir()
	config, adapter := tinyConfig(t, dir, ""), randomAdapter(t, 2)
	mustIn(t, dir, "train", config, "run.name=trained", "run.steps=1", "lora.rank=2", "lora.lr_scale=1000")
	play := func(args ...string) string {
		t.Helper()
		mustIn(t, dir, slices.Concat([]string{"eval", config, "--output", "episodes.jsonl"}, args)...)
		data, err := os.ReadFile(filepath.Join(dir, "episodes.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	base, trained := play(), filepath.Join("runs", "trained")
	of := play("--adapter", filepath.Join(trained, "global_step_1", "actor"))
	if of != play("--checkpoint", trained) || of == base {
		t.Error("the adapter of a checkpoint does not play as the checkpoint does, or as the base does")
	}
	if other := play("--adapter", adapter); other == of || other == base {
		t.Error("another adapter plays the same episodes")
	}
	mustIn(t, dir, "eval", config, "--dry-run", "--adapter", adapter)
	for _, more := range [][]string{{"--checkpoint", trained}, {trained}, {"--random"}} {
		args := slices.Concat([]string{"eval", config, "--adapter", adapter}, more)
		if code, _, stderr := runIn(t, dir, args...); code != exitcode.Usage || !strings.Contains(stderr, "--adapter") {
			t.Errorf("gyre %v: exit %d, %s", args, code, stderr)
		}
	}
}
