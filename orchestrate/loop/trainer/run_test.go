package trainer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/collapse"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// given opens a run on episodes that are given, in which nothing is played.
func given(t *testing.T, lines string, overrides ...string) *Trainer {
	t.Helper()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "episodes.jsonl"), filepath.Join(dir, "c.toml")
	document := fmt.Sprintf("[run]\nname = 'r'\nsteps = 2\noutput = %q\n[model]\npath = '%s/llama'\ndtype = "+
		"'float32'\n[algorithm]\nadvantage = 'grpo'\n[actor]\nmini_batch = 2\n[analysis]\nenabled = false\n",
		dir, fixtures)
	for name, text := range map[string]string{file: lines, path: document} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c, err := config.LoadFor(func(*config.Config) bool { return true }, path, overrides)
	if err != nil {
		t.Fatal(err)
	}
	run, err := New(context.Background(), c, session.Options{Replay: file, Console: metrics.NewConsole(io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Close)
	return run
}

const twoGroups = `{"group": 4, "ids": [3, 4, 5, 6], "mask": [0, 0, 1, 1], "rewards": [[3, 1]]}
{"group": 4, "ids": [3, 4, 7], "mask": [0, 0, 1], "rewards": [[2, 0]]}
{"group": 9, "ids": [3, 5, 5, 8, 9, 9, 9], "mask": [0, 1, 0, 1, 1, 1, 1], "rewards": [[3, 0.5]]}
{"group": 9, "ids": [3, 5, 5, 9], "mask": [0, 1, 0, 1], "rewards": [[3, 0.5]]}
`

// An update that measures a gap between the sampler's log-probs and the trainer's withdraws the proof: from then on
// they are recomputed, the run says so, and a resumed one remembers.
func TestAGapWithdrawsTheProof(t *testing.T) {
	run := given(t, twoGroups)
	run.Exact = true
	s := &Step{Number: 1, Line: metrics.Line{}}
	s.Chosen.objective = train.Objective{PolicyLoss: experiment.Loss(run.Config)}
	s.Chosen.Episodes = handwritten(t, strings.Split(strings.TrimSpace(twoGroups), "\n")...)
	s.Chosen.Batch = session.BatchOf(s.Chosen.Episodes)
	score := func() (bool, error) {
		s.Chosen.from = source.Provenance{Weights: source.Present, Exact: run.Exact}
		err := run.preparation.oldLogprobs(context.Background(), &s.Chosen, metrics.Line{})
		return s.Chosen.sampled, err
	}
	if sampled, err := score(); err != nil || sampled {
		t.Fatalf("episodes without log-probs: %v, %v", sampled, err)
	}
	for i, e := range s.Chosen.Episodes {
		e.Logprob = append([]float32(nil), s.Chosen.Batch.Old[i]...)
		s.Chosen.Batch.Advantages = append(s.Chosen.Batch.Advantages, make([]float32, len(e.IDs)))
	}
	if sampled, err := score(); err != nil || !sampled {
		t.Fatalf("the sampler's log-probs are not used: %v, %v", sampled, err)
	}
	for _, gap := range []float32{0, 1e-3} {
		s.Chosen.Batch.Old[0][2] += gap
		if err := run.update.actor(context.Background(), s); err != nil {
			t.Fatal(err)
		}
		run.judgeSampler(s)
		if withdrawn := gap > 0; run.Exact == withdrawn ||
			(run.State.SamplerGap > 0) != withdrawn ||
			(s.Line["rollout/sampler_equals_trainer"] == 0.0) != withdrawn {
			t.Errorf("a gap of %v: exact %v, remembered %v, %v", gap, run.Exact, run.State.SamplerGap, s.Line)
		}
	}
	if sampled, err := score(); err != nil || sampled {
		t.Errorf("after the gap the sampler's log-probs are still used: %v", err)
	}
	if again, err := run.ProveExact(context.Background(), run.State.SamplerGap); again || err != nil {
		t.Errorf("a resumed run proves itself exact again: %v, %v", again, err)
	}
}

// Whatever takes long in a step says how far it is, to the end and not beyond it: updates too, and every way to
// analyse.
func TestLongWorkShowsItsProgress(t *testing.T) {
	for _, how := range []string{"analysis.profile=exact", "analysis.low_memory=true", "analysis.profile=paper"} {
		text := expectation{Case: "ppo", Model: "llama"}.toml(t.TempDir())
		text = strings.NewReplacer("steps = 0", "steps = 1", "mini_batch = 0", "mini_batch = 4", "lr = 0\n",
			"lr = 0.001\n", "temperature = 0", "temperature = 1",
			"kl_coef = 0", "kl_coef = 0.1", "entropy_coef = 0", "entropy_coef = 0.01", `loss_aggregation = ""`,
			`loss_aggregation = "token-mean"`,
			"gamma = 0", "gamma = 1", "lambda = 0", "lambda = 1", "enabled = false", "enabled = true").Replace(text)
		c, err := config.Parse("progress.toml", []byte(text), []string{how, "filter.strategy=none",
			"analysis.num_buckets=2", "actor.epochs=2", "actor.micro_batch_tokens=16"})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		console := metrics.NewConsole(&out)
		console.Quiet = 0
		run, err := New(context.Background(), c, session.Options{Replay: filepath.Join(fixtures, "episodes.jsonl"),
			Console: console})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := run.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		run.Close()
		samples, passes := 12, 1
		switch how {
		case "analysis.profile=paper":
			passes = 2
		case "analysis.low_memory=true":
			passes = 3
		}
		for label, total := range map[string]int{"actor update": 2 * samples, "critic update": samples,
			"gradient analysis": passes * samples} {
			last, lines := 0, 0
			for _, line := range strings.Split(out.String(), "\n") {
				var done, of int
				if n, _ := fmt.Sscanf(line, label+" %d/%d", &done, &of); n < 2 {
					continue
				}
				if lines++; of != total || done <= last || done > total {
					t.Errorf("%s: %q after %d of %d", how, line, last, total)
				}
				last = done
			}
			if last != total || lines < 3 {
				t.Errorf("%s: %s was told in %d lines, the last at %d of %d\n%s", how, label, lines, last, total,
					out.String())
			}
		}
	}
}

// verl's tensors keep the width of the whole rollout: the filter must not change what seq-mean-token-sum-norm divides
// by.
func TestWidthIsTheRollouts(t *testing.T) {
	run := given(t, twoGroups, "filter.strategy=top_k_abs", "filter.value=1",
		"actor.loss_aggregation=seq-mean-token-sum-norm")
	b, err := run.source.Next(context.Background(), 1, metrics.Line{})
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := run.preparation.choose(context.Background(), b.Episodes, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(chosen.Episodes) != 2 || chosen.Episodes[0].Group != 4 {
		t.Fatalf("kept %d episodes", len(chosen.Episodes))
	}
	chosen.Batch.Weigh("seq-mean-token-sum-norm", chosen.width)
	// the longest of the rollout, which was dropped, has 7 tokens
	if got, want := chosen.Batch.Weights[0][2], float32(1.0/6); got != want {
		t.Errorf("a token weighs %v, want %v", got, want)
	}
}

// A reward that no float32 holds is refused where it is read, with its place.
func TestRewardsBeyondFloatsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "e.jsonl")
	line := `{"group": 0, "ids": [1, 2], "mask": [0, 1], "rewards": [[1, 0]]}` + "\n" +
		`{"group": 0, "ids": [1, 2], "mask": [0, 1], "rewards": [[1, 1e300]]}` + "\n"
	if err := os.WriteFile(path, []byte(line), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := source.ReadSteps(path); err == nil ||
		!strings.Contains(err.Error(), "episode 2 (group 0) has a reward or score of 1e+300") {
		t.Errorf("got %v", err)
	}
}

// Weights whose gradients are not finite are not saved, whether a forward pass shows it or not.
func TestUnsoundWeightsAreNotSaved(t *testing.T) {
	for why, spoilt := range map[string]func(*Trainer){
		"step 2": func(run *Trainer) {
			spoil(t, run.Actor.Model, "model.embed_tokens.weight",
				math.Inf(1))
		},
		"has the norm NaN (critic)": func(run *Trainer) { spoil(t, run.Critic.Model, "score.weight", 1e25) },
	} {
		run := given(t, twoGroups, "algorithm.advantage=gae")
		if err := run.Checkpoints.Save(context.Background(), session.State{Step: 1}); err != nil {
			t.Fatal(err)
		}
		spoilt(run)
		err := run.Checkpoints.Save(context.Background(), session.State{Step: 2})
		if err == nil || !strings.Contains(err.Error(), "no checkpoint of step 2") ||
			!strings.Contains(err.Error(), why) {
			t.Errorf("saving gave %v, want %q", err, why)
		}
		if found, _ := filepath.Glob(filepath.Join(run.Dir.Path, "global_step_*")); len(found) != 1 ||
			filepath.Base(found[0]) != "global_step_1" {
			t.Errorf("left are %v", found)
		}
	}
}

// Steps without anything to learn from end a run early; after gradients that were not finite they mean that it has
// diverged.
func TestEmptyStepsAfterUnsoundGradientsAreDivergence(t *testing.T) {
	same := strings.NewReplacer("[3, 1]", "[3, 0.5]", "[2, 0]", "[2, 0.5]").Replace(twoGroups)
	for _, unsound := range []int{0, 1} {
		run := given(t, same, "filter.strategy=top_p", "filter.value=0.9", "filter.include_zero=false",
			"early_stop.empty_steps=1")
		run.State.Step, run.State.Unsound = 1, unsound
		_, err := run.step(context.Background())
		var early *collapse.StoppedEarly
		var diverged *session.Divergence
		if errors.As(err, &early) != (unsound == 0) || errors.As(err, &diverged) != (unsound > 0) {
			t.Errorf("gradients not finite since step %d: %v", unsound, err)
		}
	}
}

// A step whose gradients are not finite is remembered.
func TestUnsoundStepsAreRemembered(t *testing.T) {
	for _, broken := range []bool{false, true} {
		run := given(t, twoGroups, "algorithm.advantage=gae", "critic.warmup=5")
		if broken {
			spoil(t, run.Critic.Model, "score.weight", 1e25) // values that are finite, gradients that are not
		}
		if _, err := run.step(context.Background()); err != nil {
			t.Fatal(err)
		}
		if (run.State.Unsound == 1) != broken {
			t.Errorf("a broken critic %v: unsound since step %d", broken, run.State.Unsound)
		}
	}
}

// spoil gives all elements of a parameter one value.
func spoil(t *testing.T, model *torch.Model, name string, value float64) {
	t.Helper()
	parameters, err := model.Parameters()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parameters {
		if p.Name != name {
			continue
		}
		values, err := p.Tensor.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range values {
			values[i] = float32(value)
		}
		if err := errors.Join(p.Tensor.SetFloat32s(values), model.Touch()); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no parameter %s", name)
}

// The checkpoint before the newest goes when a step after it was sound; the last one before gradients that are not
// finite stays.
func TestCheckpointsWaitForTheirProof(t *testing.T) {
	run := given(t, twoGroups)
	left := func(want ...string) {
		t.Helper()
		found, _ := filepath.Glob(filepath.Join(run.Dir.Path, "global_step_*"))
		var names []string
		for _, path := range found {
			names = append(names, strings.TrimPrefix(filepath.Base(path), "global_step_"))
		}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("left are the checkpoints %v, want %v", names, want)
		}
	}
	step := func(n int, skipped float64) {
		t.Helper()
		s := &Step{Number: n, Line: metrics.Line{}}
		s.Chosen.Batch = session.BatchOf(handwritten(t, strings.Split(strings.TrimSpace(twoGroups), "\n")...))
		if skipped > 0 {
			s.Line["actor/skipped_steps"] = skipped
		}
		if err := run.noteSoundness(s); err != nil {
			t.Fatal(err)
		}
		run.State.Step = n
		if err := run.Checkpoints.Save(context.Background(), run.State); err != nil {
			t.Fatal(err)
		}
	}
	step(1, 0)
	step(2, 0)
	left("1", "2")
	step(3, 1)
	left("2", "3")
	step(4, 2)
	left("2", "3", "4")
	step(5, 1)
	left("2", "4", "5")
	step(6, 0)
	left("5", "6")
	if err := run.Checkpoints.Proven(run.State); err != nil {
		t.Fatal(err)
	}
	left("6")
}

// ran runs given episodes with a configuration and returns what it said, and its last line of metrics.
func ran(t *testing.T, overrides ...string) (said string, last map[string]any) {
	t.Helper()
	run := given(t, twoGroups, overrides...)
	var out bytes.Buffer
	run.Console = metrics.NewConsole(&out)
	run.Log.Console = run.Console
	if _, err := run.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for record, err := range metrics.Read(filepath.Join(run.Dir.Path, metrics.File)) {
		if err != nil {
			t.Fatal(err)
		}
		last = record.Values
	}
	return out.String(), last
}

// A run that ends after its analysis, as it was asked to, has not failed to learn.
func TestAnIntendedEndIsNoWarning(t *testing.T) {
	const warning = "no step had anything to learn from"
	if said, _ := ran(t, "analysis.enabled=true", "analysis.exit_after=true", "filter.strategy=none",
		"analysis.num_buckets=2"); strings.Contains(said, warning) {
		t.Errorf("a run that was to end after its analysis said\n%s", said)
	}
}

// A file of one step is used at every step, and the run says so.
func TestReplayOfOneStepIsTold(t *testing.T) {
	run := given(t, twoGroups)
	text, err := os.ReadFile(run.Dir.File("log.txt"))
	if want := "each of the 2 steps trains on all 4 of them"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the log has no %q: %s %v", want, text, err)
	}
}

// What --resume --dry-run checks opens no directory.
func TestCheckOfAResumedRun(t *testing.T) {
	run := given(t, twoGroups)
	if _, err := run.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	run.Close()
	c := *run.Config
	c.Run.Steps, c.Actor.LR = 3, 1e-3
	if _, err := Check(&c, session.Options{Resume: true, Replay: run.Options.Replay,
		Console: metrics.NewConsole(io.Discard)}); err != nil {
		t.Error(err)
	}
}

// A probe of a run takes the checkpoint that was kept under the number of its step.
func TestProbeFindsAKeptStep(t *testing.T) {
	run := given(t, twoGroups, "run.save_every=1", "checkpoint.keep=0", "filter.strategy=none",
		"analysis.num_buckets=2")
	if _, err := run.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for step, want := range map[int]string{1: "global_step_1", 2: "global_step_2", 7: "global_step_2"} {
		var out bytes.Buffer
		if _, err := Analyze(context.Background(), run.Config, Probe{Checkpoint: run.Dir.Path,
			Rollouts: run.Options.Replay, Step: step,
			Console: metrics.NewConsole(&out)}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), filepath.Join(want, "actor")) {
			t.Errorf("step %d: not analysed from %s:\n%s", step, want, out.String())
		}
	}
}

// A linear schedule ends at its floor in the last step, also where the filter drops groups before.
func TestSchedulesEndWithTheRun(t *testing.T) {
	_, last := ran(t, "actor.schedule=linear", "actor.lr=1e-3", "actor.min_lr_ratio=0.1", "filter.strategy=top_k_abs",
		"filter.value=1", "run.steps=3")
	if rate, _ := last["actor/lr"].(float64); rate < 0.99e-4 || rate > 1.01e-4 {
		t.Errorf("the last step's learning rate is %v, want 1e-4", last["actor/lr"])
	}
}
