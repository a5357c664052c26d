package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/npz"
)

// The gradients of the reward's parts over ranks: their files and numbers are those of one process, whatever is in
// shards, and its bits where sums are deterministic; and so are those of analyze on given episodes.
func TestComponentsOverRanks(t *testing.T) {
	dir := t.TempDir()
	config := tinyConfig(t, dir, partsOfTheReward)
	common := []string{"envs.0.tag=Arithmetic", "validation.envs.0.tag=Arithmetic", "envs.0.max_turns=1",
		"envs.0.groups=3", "run.validate_every=0", "run.validate_first=false",
		"run.steps=2", "analysis.every=1", "rollout.prompt=chat", "rollout.max_tokens=24", "actor.eps=1e-3"}
	train := func(name string, more ...string) string {
		t.Helper()
		mustIn(t, dir, append(append([]string{"train", config, "run.name=" + name}, common...), more...)...)
		return filepath.Join(dir, "runs", name)
	}
	file := "gradient_analysis_sums/gradients_step_1.npz"
	cases := []struct {
		name string
		args []string
	}{{"none", []string{"--ranks", "2", "components.save=projection"}},
		{"full", []string{"--ranks", "2", "fsdp.shard=full"}}}
	advantages := []string{"grpo"} // one advantage for all tokens of an episode
	if os.Getenv("GYRE_TEST_RANKS") != "" {
		advantages = append(advantages, "gae") // and one for each
		cases = append(cases, []struct {
			name string
			args []string
		}{{"three", []string{"--ranks", "3"}}, {"optimizer", []string{"--ranks", "2", "fsdp.shard=optimizer"}},
			{"parts", []string{"--ranks", "4", "fsdp.shard=full"}},
			{"replicas", []string{"--ranks", "4", "fsdp.shard=full", "fsdp.replicas=2"}}}...)
	}
	for _, advantage := range advantages {
		of := func(args ...string) []string { return append(args, "algorithm.advantage="+advantage) }
		one := train("one-"+advantage, of()...)
		for _, x := range cases {
			many := train(x.name+"-"+advantage, of(x.args...)...)
			closeMetrics(t, one, many, 1e-4)
			sameGradients(t, filepath.Join(one, file), filepath.Join(many, file), x.name == "none")
		}
		sure := of("fsdp.deterministic=true", "fsdp.lanes=12")
		alone := train("lanes-"+advantage, sure...)
		for _, mode := range []string{"none", "full"} {
			many := train("lanes-"+mode+advantage, append(sure, "--ranks", "2", "fsdp.shard="+mode)...)
			sameNumbers(t, alone, many)
			if string(readFile(t, filepath.Join(alone, file))) != string(readFile(t, filepath.Join(many, file))) {
				t.Errorf("%s, %s: the files of gradients differ", advantage, mode)
			}
		}
		var probed [2]map[string]any
		for i, args := range [][]string{{"--output", "probe1-" + advantage}, {"--output", "probe2-" + advantage,
			"--ranks", "2", "fsdp.shard=full"}} {
			out := mustIn(t, dir, append(of(append([]string{"analyze", config, "--checkpoint", one + "/global_step_1",
				"--rollouts", one + "/rollouts/step_2.jsonl", "--json"},
				common...)...), args...)...)
			if err := json.Unmarshal([]byte(out), &probed[i]); err != nil {
				t.Fatal(err)
			}
		}
		compared := 0
		for key, v := range probed[0] {
			if x, number := v.(float64); number && strings.HasPrefix(key, "grad_") {
				compared++
				if y, ok := probed[1][key].(float64); !ok || math.Abs(x-y) > 1e-4*math.Max(math.Abs(x), 0.1) {
					t.Errorf("analyze: %s = %v, want %v", key, probed[1][key], v)
				}
			}
		}
		if compared < 30 {
			t.Errorf("analyze: only %d numbers were compared", compared)
		}
		sameGradients(t, filepath.Join(dir, "probe1-"+advantage, file), filepath.Join(dir, "probe2-"+advantage, file),
			false)
	}
}

// sameNumbers compares the metrics of two runs bit by bit.
func sameNumbers(t *testing.T, want, got string) {
	t.Helper()
	closeMetrics(t, want, got, 0)
}

// sameGradients compares two files of gradients, of which the second may hold projections.
func sameGradients(t *testing.T, want, got string, projected bool) {
	t.Helper()
	a := readArrays(t, want)
	b := readArrays(t, got)
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%s: %d arrays, want %d", got, len(b), len(a))
	}
	for i := range a {
		size, difference := 0.0, 0.0
		if projected && len(a[i].Values) > len(b[i].Values) {
			continue // the shorter ones are as they were
		}
		if a[i].Name != b[i].Name || len(a[i].Values) != len(b[i].Values) {
			t.Fatalf("%s: %s of %d values, want %s of %d", got, b[i].Name, len(b[i].Values), a[i].Name,
				len(a[i].Values))
		}
		for k, v := range a[i].Values {
			size, difference = math.Max(size, math.Abs(float64(v))),
				math.Max(difference, math.Abs(float64(v)-float64(b[i].Values[k])))
		}
		if difference > 2e-5*size {
			t.Errorf("%s: %s differs by %g, the largest is %g", got, a[i].Name, difference, size)
		}
	}
}

// readArrays reads all arrays of a file.
func readArrays(t *testing.T, path string) (arrays []npz.Array) {
	t.Helper()
	f, err := npz.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range f.Names {
		a, err := f.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		arrays = append(arrays, a)
	}
	return arrays
}
