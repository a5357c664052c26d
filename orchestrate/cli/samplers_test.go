package cli

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gyre/internal/exitcode"
)

// Ranks that only sample (fsdp.samplers) play while the others train. What they do is exact, goes on after a kill, also
// on other ranks, and is repeated to the same bits by one process.
func TestRanksThatSample(t *testing.T) {
	for name, x := range map[string]struct {
		ranks, others []string
		more          []string
	}{
		"one of two": {[]string{"--ranks", "2", "fsdp.samplers=1"}, []string{"--ranks", "3", "fsdp.samplers=2"},
			[]string{"rollout.on_update=recompute"}},
		"two of four, in shards": {[]string{"--ranks", "4", "fsdp.samplers=2", "fsdp.shard=full"}, []string{"fsdp.samplers=1"},
			[]string{"rollout.on_update=finish", "fsdp.deterministic=true", "algorithm.preset=dapo", "filter.max_batches=2",
				"filter.strategy=top_p", "envs.0.options.flat=true", "envs.1.options.flat=true"}},
		"two of three, kept": {[]string{"--ranks", "3", "fsdp.samplers=2"}, []string{"--ranks", "2", "fsdp.samplers=1"},
			[]string{"rollout.on_update=keep", "run.save_every=2", "rollout.max_tokens=24"}},
	} {
		t.Run(name, func(t *testing.T) {
			kills, repeats := 3, map[string][]string{"alone": nil, "elsewhere": x.others}
			if os.Getenv("GYRE_TEST_RANKS") == "" {
				kills = 1
				delete(repeats, "elsewhere")
				if name != "one of two" {
					thorough(t)
				}
			}
			dir := t.TempDir()
			args := append([]string{"train", asyncConfig(t, dir)}, x.more...)
			s := storm{random: rand.New(rand.NewPCG(testSeed(t), 0)), log: filepath.Join(dir, "runs/tiny/log.txt"),
				least: 2 * time.Second, most: 5 * time.Second}
			for !s.over(t, kills) {
				on := x.ranks
				if s.kills == 1 {
					on = x.others
				}
				if s.strike(t, gyre(t, dir, slices.Concat(args, on, []string{"--resume"})...)) {
					os.RemoveAll(filepath.Join(dir, "runs")) // start over, so that all hit a working run
				}
				time.Sleep(3 * time.Second) // for its ranks to end
			}
			mustIn(t, dir, slices.Concat(args, x.ranks, []string{"--resume"})...)
			run := filepath.Join(dir, "runs/tiny")
			every := 1
			if slices.Contains(args, "run.save_every=2") {
				every = 2
			}
			for again, on := range repeats {
				mustIn(t, dir, slices.Concat(args, on, []string{"run.name=" + again, "--replay-schedule", "runs/tiny"})...)
				sameCheckpoints(t, run, filepath.Join(dir, "runs", again), every, 8)
			}
			if how := strings.TrimPrefix(x.more[0], "rollout.on_update="); how != "keep" { // which may have had nothing to keep
				holdsStaleness(t, run, 4, how)
			}
			exactLogprobs(t, dir, run)
		})
	}
}

// What does not fit is refused by its key, and a sampler that is killed is named as any rank.
func TestSamplersThatCannotBe(t *testing.T) {
	dir := t.TempDir()
	config := asyncConfig(t, dir)
	for want, args := range map[string][]string{
		"fsdp.samplers = 2 of 2 ranks": {"--ranks", "2", "fsdp.samplers=2"},
		"rollout.staleness = 0":        {"--ranks", "2", "fsdp.samplers=1", "rollout.staleness=0"},
		"engine.tensor_parallel = 2":   {"--ranks", "4", "fsdp.samplers=2", "engine.tensor_parallel=2"},
		"fsdp.lanes = 4 for 3 ranks":   {"--ranks", "4", "fsdp.samplers=1", "fsdp.deterministic=true"},
	} {
		code, _, stderr := runIn(t, dir, append([]string{"train", config}, args...)...)
		if code != exitcode.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", args, code, exitcode.Usage, want, stderr)
		}
	}
}
