package cli

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
)

// agreement is how far two runs are apart: the largest relative difference of a gradient norm and of a loss in the
// first step and in any, and of a weight beside the largest one after the last.
type agreement struct{ norm1, loss1, norm, loss, weight float64 }

func (a agreement) String() string {
	return fmt.Sprintf("%.1e %.1e %.1e %.1e %.1e", a.norm1, a.loss1, a.norm, a.loss, a.weight)
}

// apart compares losses and gradient norms of all steps, and the weights of one model after the last.
func apart(t *testing.T, want, got, weights string) (a agreement) {
	t.Helper()
	x, y := steadyMetrics(t, filepath.Join(want, "metrics.jsonl")),
		steadyMetrics(t, filepath.Join(got, "metrics.jsonl"))
	if len(x) != len(y) || len(x) == 0 {
		t.Fatalf("%s: %d lines of metrics, want %d", got, len(y), len(x))
	}
	first, compared := math.MaxInt, 0
	for step := range x {
		if step > 0 {
			first = min(first, step)
		}
	}
	for step, values := range x {
		for name, v := range values {
			norm := strings.HasSuffix(name, "grad_norm") || strings.HasPrefix(name, "grad_norm/all/") &&
				strings.Count(name, "/") == 2
			loss := strings.HasSuffix(name, "_loss") || name == "train/loss" || name == "val/loss"
			number, ok := v.(float64)
			if !ok || !norm && !loss {
				continue
			}
			compared++
			other, ok := y[step][name].(float64)
			if !ok {
				t.Fatalf("%s: step %d has no %s", got, step, name)
			}
			into, least := []*float64{&a.norm, &a.norm1}, 1e-5
			if loss { // one whose tokens cancel out has no digits of its own
				into, least = []*float64{&a.loss, &a.loss1}, 1e-2
			}
			difference := math.Abs(number-other) / math.Max(math.Abs(number), least)
			*into[0] = math.Max(*into[0], difference)
			if step == first {
				*into[1] = math.Max(*into[1], difference)
			}
		}
	}
	if compared < len(x) {
		t.Fatalf("%s: only %d numbers were compared", got, compared)
	}
	a.weight = farthest(t, filepath.Join(want, weights), filepath.Join(got, weights))
	return a
}

// rewarded gathers the episodes of ten steps of a run, with rewards as a policy earns them that knows more than a
// fresh one.
func rewarded(t *testing.T, run, path string) {
	t.Helper()
	var all []*episode.Episode
	for step := range 10 {
		episodes, err := episode.ReadFile(filepath.Join(run, fmt.Sprintf("rollouts/step_%d.jsonl", step+1)))
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range episodes {
			e.Score = float64((step + 7*i) % 5)
			e.Rewards = []episode.Reward{{Token: len(e.IDs) - 1, Value: e.Score}}
		}
		all = append(all, episodes...)
	}
	if err := episode.WriteFile(path, all); err != nil {
		t.Fatal(err)
	}
}

// Ten steps of PPO with a critic, of GRPO with a KL term and a gradient analysis at each, and ten of supervised
// fine-tuning, on 1 to 4 ranks: three families with tied and untied heads, three groups of four episodes, and
// mini-batches of three samples, of which one of four ranks has none. The order of additions is all that differs.
func TestTenStepsAgree(t *testing.T) {
	t.Parallel()
	thorough(t)
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	t.Log("norms and losses in the first step, in any of ten, weights after ten:")
	for family, flags := range map[string][]string{"llama": nil, "qwen2": {"--untied"}, "qwen3": nil} {
		mustGyre(t, dir, append([]string{"model", "init", family, "--family", family, "--hidden", "16", "--layers", "2",
			"--heads", "2", "--kv-heads", "1",
			"--intermediate", "32", "--vocab", "300", "--seed", "5"}, flags...)...)
		common := []string{"model.path=" + family, "actor.eps=1e-3", "actor.mini_batch=3", "critic.mini_batch=3",
			"run.validate_every=0", "run.save_every=0",
			"run.validate_first=false", "run.steps=10", "checkpoint.keep=1"}
		mustGyre(t, dir, append([]string{"train", config, "run.name=" + family, "analysis.enabled=false"},
			common...)...)
		replay := filepath.Join(dir, family+".jsonl")
		rewarded(t, filepath.Join(dir, "runs", family), replay)
		for task, args := range map[string][]string{
			"ppo": {"train", config, "--replay", replay, "algorithm.advantage=gae", "analysis.enabled=false"},
			"grpo": {"train", config, "--replay", replay, "algorithm.advantage=grpo", "algorithm.kl_coef=0.01",
				"analysis.every=1"},
			"sft": {"sft", config, "sft.episodes=70", "sft.validation_episodes=5", "sft.epochs=1", "sft.batch=7"},
		} {
			run := func(name string, more ...string) string {
				name = task + "-" + family + "-" + name
				mustGyre(t, dir, slices.Concat(args, common, []string{"run.name=" + name}, more)...)
				return filepath.Join(dir, "runs", name)
			}
			one := run("1")
			last, err := rundir.ReadInfo(one)
			if err != nil {
				t.Fatal(err)
			}
			weights := fmt.Sprintf("global_step_%d/actor/model.safetensors", last.Step)
			for _, n := range []int{2, 3, 4} {
				mode := []string{"none", "optimizer", "full"}[n%3]
				many := run(strconv.Itoa(n), "--ranks", strconv.Itoa(n), "fsdp.shard="+mode)
				a := apart(t, one, many, weights)
				t.Logf("%-5s %-5s %d ranks, %-9s %v", task, family, n, mode, a)
				if a.norm1 > 1e-6 || a.loss1 > 3e-6 || a.norm > 1e-5 || a.loss > 1e-5 || a.weight > 1e-6 {
					t.Errorf("%s of %s on %d ranks, shard = %s: %v", task, family, n, mode, a)
				}
			}
			// And with lanes not even that.
			lanes := []string{"fsdp.deterministic=true", "fsdp.lanes=12"}
			sure := run("lanes1", lanes...)
			for _, n := range []string{"3", "4"} {
				many := run("lanes"+n, append(lanes, "--ranks", n, "fsdp.shard=full")...)
				sameNumbers(t, sure, many)
				if d := farthest(t, filepath.Join(sure, weights), filepath.Join(many, weights)); d != 0 {
					t.Errorf("%s of %s on %s ranks with lanes: weights differ by %g", task, family, n, d)
				}
			}
		}
	}
}
