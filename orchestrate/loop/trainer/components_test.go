package trainer

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/npz"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// partsFile gives the hand-written episodes parts: two that make up the score, a copy of one at another scale, its
// opposite, and one that all have alike.
func partsFile(t *testing.T) string {
	t.Helper()
	episodes, err := episode.ReadFile(slow + "/episodes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range episodes {
		b := math.Sin(float64(i))
		last := len(e.IDs) - 1
		// The parts lie on different tokens: estimators that compare whole episodes do not care.
		e.Components = map[string][]episode.Reward{"a": {{Token: 1, Value: e.Score - 2*b - 1}, {Token: last, Value: 1}},
			"b":    {{Token: last, Value: b}},
			"copy": {{Token: last, Value: 3*b - 1}}, "against": {{Token: last, Value: -b}},
			"same": {{Token: last, Value: .1}}}
	}
	path := filepath.Join(t.TempDir(), "parts.jsonl")
	if err := episode.WriteFile(path, episodes); err != nil {
		t.Fatal(err)
	}
	return path
}

// The gradients of the parts are those of the update: the total's is the task's, bucket by bucket, the others are the
// loss's own terms. What points the same way has the cosine 1, and what does not exist is null.
func TestComponentsOfGivenEpisodes(t *testing.T) {
	file := partsFile(t)
	for _, mode := range []string{"independent", "exact"} {
		cfg, err := config.Parse("slow.toml", []byte(readSlow(t)["exact_grpo"].toml()),
			[]string{"components.enabled=true", "components.mode=" + mode,
				"components.names=[\"a\",\"b\",\"copy\",\"against\",\"same\"]",
				"components.save=full", "components.data=given",
				"components.weights={a=1,b=2,copy=0,against=0,same=0}"})
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		result, err := Analyze(context.Background(), cfg, Probe{Rollouts: file, Output: out,
			Console: metrics.NewConsole(io.Discard)})
		if err != nil {
			t.Fatal(err)
		}
		got := result.Values
		for part, term := range map[string]string{"total": "task", "entropy": "entropy", "kl": "kl"} {
			near(t, mode+" norm of "+part, got["grad_components/norm/"+part], got["grad_norm/all/"+term].(float64), 0,
				1e-4)
		}
		near(t, "task and kl", got["grad_components/cosine/kl/total"], got["grad_norm/all/cosine/task_kl"].(float64), 1,
			1e-4)
		if mode == "independent" {
			near(t, "copy", got["grad_components/cosine/b/copy"], 1, 1, 1e-5)
			near(t, "opposite", got["grad_components/cosine/copy/against"], -1, 1, 1e-5)
			low, high := got["grad_components/cosine/a/b/low"].(float64),
				got["grad_components/cosine/a/b/high"].(float64)
			if !(-1 < low && low < 0 && 0 < high && high < 1) {
				t.Errorf("chance would give [%v, %v]", low, high)
			}
		} else if e, ok := got["grad_components/check/sum_error"].(float64); !ok || e > 1e-5 {
			t.Errorf("the parts' sum is off by %v", got["grad_components/check/sum_error"])
		}
		if v, found := got["grad_components/cosine/a/same"]; !found || v != nil ||
			got["grad_components/norm/same"] != 0.0 {
			t.Errorf("a part without a gradient: cosine %v (%v), norm %v", v, found, got["grad_components/norm/same"])
		}
		line, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
		if err != nil || !strings.Contains(string(line), `"grad_components/cosine/a/same":null`) {
			t.Errorf("metrics: %v %.300s", err, line)
		}
		for key, v := range got {
			if number, ok := v.(float64); ok && strings.HasPrefix(key, "grad_components/") &&
				(math.IsNaN(number) || math.IsInf(number, 0)) {
				t.Errorf("%s = %v", key, number)
			}
		}
		arrays := readArrays(t, filepath.Join(out, "gradient_analysis_given", "gradients_step_0.npz"))
		squares := map[string]float64{}
		for _, a := range arrays {
			part, _, _ := strings.Cut(a.Name, "/")
			for _, v := range a.Values {
				squares[part] += float64(v) * float64(v)
			}
		}
		for part, square := range squares {
			if norm := got["grad_components/norm/"+part].(float64); math.Abs(math.Sqrt(square)-norm) > 1e-6*norm {
				t.Errorf("the file's gradient of %s has norm %v, the metric is %v", part, math.Sqrt(square), norm)
			}
		}
		if len(squares) < 5 {
			t.Errorf("the file has the parts %v", squares)
		}
		table, err := os.ReadFile(filepath.Join(out, "gradient_analysis_given", "cosines_step_0.csv"))
		if err != nil || !strings.HasPrefix(string(table), "scope,name,first,second,cosine,") ||
			!strings.Contains(string(table), "layer,layers.0,a,b,") ||
			!strings.Contains(string(table), "kind,attention,a,b,") || !strings.Contains(string(table),
			"parameter,model.embed_tokens.weight,a,b,") {
			t.Errorf("table: %v %.300s", err, table)
		}
	}
}

// Whatever the estimator, the total's gradient is the update's, and in exact mode the parts add up to it: what a
// critic expected is one of them.
func TestComponentsOfEveryEstimator(t *testing.T) {
	file := partsFile(t)
	for estimator, names := range map[string]string{"grpo": "total", "rloo": "total", "brpo": "total",
		"reinforce_pp_baseline": "total",
		"reinforce_pp":          "total", "gae": "baseline", "bi_level_gae": "baseline"} {
		for _, turns := range []string{"false", "true"} {
			if estimator == "bi_level_gae" && turns == "false" {
				continue // needs a reward per turn
			}
			cfg, err := config.Parse("slow.toml", []byte(readSlow(t)["exact_grpo"].toml()),
				[]string{"algorithm.advantage=" + estimator, "algorithm.gamma=0.95",
					"components.mode=exact", "components.names=[\"a\",\"b\"]", "components.weights={a=1,b=2}",
					"components.permutations=0", "rollout.turn_rewards=" + turns})
			if err != nil {
				t.Fatal(err)
			}
			result, err := Analyze(context.Background(), cfg,
				Probe{Rollouts: file, Console: metrics.NewConsole(io.Discard)})
			if err != nil {
				t.Fatal(err)
			}
			got := result.Values
			near(t, estimator+" total", got["grad_components/norm/total"], got["grad_norm/all/task"].(float64), 0, 1e-4)
			if e, ok := got["grad_components/check/sum_error"].(float64); !ok || e > 1e-5 {
				t.Errorf("%s, turn rewards %s: the parts' sum is off by %v", estimator, turns,
					got["grad_components/check/sum_error"])
			}
			if v, ok := got["grad_components/norm/"+names].(float64); !ok || v <= 0 {
				t.Errorf("%s: norm of %s %v", estimator, names, got["grad_components/norm/"+names])
			}
		}
	}
}

// A component that is named but occurs in no episode measures nothing and is warned of; the run goes on, also where no
// episode has any component.
func TestComponentsThatLack(t *testing.T) {
	c := readSlow(t)["exact_grpo"]
	for _, x := range []struct {
		file, names, warning string
		measured             bool
	}{
		{partsFile(t), `["a","nobody"]`, `lists "nobody", but the episodes have a, against, b, copy, same`, true},
		{partsFile(t), `["nobody"]`, `lists "nobody"`, false},
		{slow + "/" + c.Config.Episodes, "[]", "no episode has a reward component", false},
	} {
		cfg, err := config.Parse("slow.toml", []byte(c.toml()), []string{"run.name=lack", "run.output=" + t.TempDir(),
			"run.steps=2", "analysis.enabled=false",
			"components.enabled=true", "components.save=full", "components.data=x", "components.permutations=0",
			"components.names=" + x.names})
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		trainer, err := New(context.Background(), cfg, session.Options{Console: metrics.NewConsole(&said),
			Replay: x.file})
		if err != nil {
			t.Fatal(err)
		}
		outcome, err := trainer.Run(context.Background())
		trainer.Close()
		if err != nil || outcome.Early != nil {
			t.Errorf("%s: %+v, %v", x.names, outcome, err)
		}
		if !strings.Contains(said.String(), x.warning) {
			t.Errorf("%s: no warning %q in\n%s", x.names, x.warning, said.String())
		}
		for record, err := range metrics.Read(filepath.Join(cfg.Run.Output, "lack", "metrics.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			_, a := record.Values["grad_components/norm/a"]
			if _, nobody := record.Values["grad_components/norm/nobody"]; nobody || a != x.measured {
				t.Errorf("%s, step %d: norm of a %v, of nobody %v", x.names, record.Step, a, nobody)
			}
		}
	}
}

// What the episodes' old log-probs say of another policy changes nothing: gradients are those at the present weights.
func TestComponentsIgnoreOldLogprobs(t *testing.T) {
	episodes, err := episode.ReadFile(partsFile(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range episodes {
		e.Logprob = make([]float32, len(e.IDs))
		for i, sampled := range e.Mask {
			if sampled {
				e.Logprob[i] = -3 - float32(i%3)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "old.jsonl")
	if err := episode.WriteFile(file, episodes); err != nil {
		t.Fatal(err)
	}
	var found []map[string]any
	for _, overrides := range [][]string{nil, {"actor.recompute_logprobs=true"}} {
		cfg, err := config.Parse("slow.toml", []byte(readSlow(t)["exact_grpo"].toml()),
			append([]string{"components.permutations=0"}, overrides...))
		if err != nil {
			t.Fatal(err)
		}
		result, err := Analyze(context.Background(), cfg,
			Probe{Rollouts: file, Console: metrics.NewConsole(io.Discard)})
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, result.Values)
	}
	for _, key := range []string{"norm/total", "norm/a", "norm/kl", "norm/entropy", "cosine/a/kl", "cosine/b/total"} {
		near(t, key, found[0]["grad_components/"+key], found[1]["grad_components/"+key].(float64), 1e-3, 1e-4)
	}
	if found[0]["grad_norm/all/task"] == found[1]["grad_norm/all/task"] {
		t.Error("the log-probs of another policy should change the update's own gradient")
	}
	if _, banded := found[0]["grad_components/cosine/a/b/low"]; banded {
		t.Error("a band without permutations")
	}
}

// Measuring changes nothing, and a resumed run leaves the files of an undisturbed one.
func TestComponentsChangeNothing(t *testing.T) {
	file := partsFile(t)
	c := readSlow(t)["exact_grpo"]
	run := func(name string, dir string, overrides ...string) *Trainer {
		t.Helper()
		cfg, err := config.Parse("slow.toml", []byte(c.toml()),
			append([]string{"run.name=" + name, "run.output=" + dir, "run.steps=1", "analysis.enabled=false",
				"run.save_every=1"}, overrides...))
		if err != nil {
			t.Fatal(err)
		}
		trainer, err := New(context.Background(), cfg, session.Options{Console: metrics.NewConsole(io.Discard),
			Replay: file})
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		if _, err := trainer.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		return trainer
	}
	dir := t.TempDir()
	run("with", dir, "components.enabled=true", "components.save=projection", "components.data=x",
		"components.link="+dir)
	run("without", dir)
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name, "global_step_1", "actor", "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if read("with") != read("without") {
		t.Error("the weights after the update differ")
	}
	arrays := readArrays(t, filepath.Join(dir, "gradient_analysis_x", "gradients_step_0.npz")) // by the link
	if len(arrays) == 0 {
		t.Fatal("no arrays")
	}
	for record, err := range metrics.Read(filepath.Join(dir, "with", "metrics.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"timing_s/grad_components", "perf/grad_components_overhead",
			"grad_components/norm/total", "grad_components/cosine/a/b"} {
			if _, ok := record.Float(key); !ok {
				t.Errorf("%s is %v", key, fmt.Sprint(record.Values[key]))
			}
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
