package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/exitcode"
)

// Ranks that sample together play the episodes that one process plays, and train to its bits: a rank of each pair has
// no environments.
func TestRanksThatSampleTogether(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	train := func(name string, args ...string) {
		t.Helper()
		mustIn(t, dir, append([]string{"train", config, "run.name=" + name, "fsdp.deterministic=true",
			"fsdp.lanes=4"}, args...)...)
	}
	train("one", "engine.tensor_parallel=2")
	if log := string(readFile(t, filepath.Join(dir, "runs/one/log.txt"))); !strings.Contains(log,
		"this is one process, which samples alone") {
		t.Errorf("the log does not say that one process samples alone:\n%s", log)
	}
	cases := map[string][]string{"shards": {"--ranks", "2", "fsdp.shard=full"}}
	if os.Getenv("GYRE_TEST_RANKS") != "" {
		cases["whole"] = []string{"--ranks", "2"}
		cases["two teams"] = []string{"--ranks", "4", "fsdp.shard=full"}
	}
	for name, args := range cases {
		train(name, append(args, "engine.tensor_parallel=2")...)
		sameRun(t, filepath.Join(dir, "runs/one"), filepath.Join(dir, "runs", name))
	}
}

// The same of adapters, on a base in shards and a whole one.
func TestRanksThatSampleTogetherWithAdapters(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	train := func(name string, args ...string) {
		t.Helper()
		mustIn(t, dir, append([]string{"train", config, "run.name=" + name, "run.steps=2", "fsdp.deterministic=true",
			"fsdp.lanes=4", "engine.tensor_parallel=2", "lora.rank=3", `lora.targets=["all", "head", "embedding"]`,
			"lora.lr_scale=10"}, args...)...)
	}
	train("one")
	for _, shard := range []string{"full", "none"} {
		train(shard, "--ranks", "2", "fsdp.shard="+shard)
		sameRun(t, filepath.Join(dir, "runs/one"), filepath.Join(dir, "runs", shard))
	}
	for _, model := range [][]string{{"--checkpoint", "runs/one"}, nil} {
		var found []string
		for _, ranks := range []string{"1", "2"} {
			found = append(found, mustIn(t, dir, append([]string{"eval", config, "--json", "engine.tensor_parallel=2",
				"--ranks", ranks}, model...)...))
		}
		if found[0] != found[1] {
			t.Errorf("%v evaluated together: %s\nalone: %s", model, found[1], found[0])
		}
	}
}

func TestWhatCannotSampleTogether(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	for want, args := range map[string][]string{
		"engine.tensor_parallel = 2, but 3 ranks cannot be divided": {"--ranks", "3", "engine.tensor_parallel=2"},
		"did you mean tensor_parallel":                              {"--ranks", "2", "engine.tensor_paralel=2"},
		"2 heads and 1 key/value heads can be divided over 1, 2":    {"--ranks", "3", "engine.tensor_parallel=3"},
		"engine.tensor_parallel: expected an integer >= 1":          {"--ranks", "2", "engine.tensor_parallel=0"},
		"cut their parts from a base in float32": {"--ranks", "2", "engine.tensor_parallel=2", "lora.rank=4",
			"model.base_dtype=int8"},
	} {
		code, _, stderr := runIn(t, dir, append([]string{"train", config}, args...)...)
		if code == exitcode.Done || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %q:\n%s", args, code, want, stderr)
		}
	}
}
