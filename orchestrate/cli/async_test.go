package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gyre/envs"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
)

// sleeper is an environment that keeps its callers waiting for as long as it likes, fails at times, and hangs once.
type sleeper struct {
	options *sleeperOptions
	draw    *rand.Rand
	turn    int
	seed    int64
}

type sleeperOptions struct {
	Milliseconds int     `option:"milliseconds" doc:"the longest wait of a call"`
	Fails        float64 `option:"fails" doc:"share of the steps that fail"`
	Hangs        bool    `option:"hangs" doc:"the third step of all hangs"`
	Flat         bool    `option:"flat" doc:"every other group earns nothing"`
}

var sleeperSteps atomic.Int64

func init() {
	envs.Register(envs.Spec{Tag: "sleeper", Type: "sleeper", MaxActions: 3, PlainReplies: true,
		NewOptions: func() any { return &sleeperOptions{} },
		New:        func(o any) (envs.Env, error) { return &sleeper{options: o.(*sleeperOptions)}, nil }})
}

func (s *sleeper) Reset(ctx context.Context, seed int64, _ int) (envs.Start, error) {
	s.draw, s.turn, s.seed = rand.New(rand.NewPCG(uint64(seed), 7)), 0, seed
	return envs.Start{}, s.sleep(ctx)
}

func (s *sleeper) sleep(ctx context.Context) error {
	wait := time.NewTimer(time.Duration(rand.IntN(s.options.Milliseconds+1)) * time.Millisecond)
	if s.turn > 0 && s.options.Hangs && sleeperSteps.Add(1) == 3 {
		wait.Reset(time.Hour)
	}
	select {
	case <-wait.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.turn > 0 && rand.Float64() < s.options.Fails {
		return errors.New("no luck")
	}
	return nil
}

func (s *sleeper) Observe() envs.Observation {
	return envs.Observation{Text: fmt.Sprintf("say %d", s.draw.IntN(10))}
}

func (s *sleeper) Step(ctx context.Context, action string) (envs.Result, error) {
	s.turn++
	reward := float64(len(action)+int(s.seed)%3) / 10
	if s.options.Flat && s.seed%2 == 0 {
		reward = 0
	}
	return envs.Result{Reward: reward, Valid: true, Done: s.turn == 3}, s.sleep(ctx)
}

func (s *sleeper) Close() error { return nil }

// asyncConfig writes a run of sources that sleep, fail and hang.
func asyncConfig(t *testing.T, dir string) string {
	source := func(options string) string {
		return fmt.Sprintf("[[envs]]\ntag = 'sleeper'\ngroups = 2\ngroup_size = 3\nmax_turns = 3\noptions = {%s}\n", options)
	}
	path := filepath.Join(dir, "async.toml")
	text := fmt.Sprintf("[run]\nname = 'tiny'\nsteps = 8\nvalidate_every = 4\nsave_every = 1\nsave_rollouts = 'all'\n"+
		"output = 'runs'\n[model]\npath = %q\ndtype = 'float32'\n%s%s%s[[validation.envs]]\ntag = 'sleeper'\ngroups = 2\n"+
		"group_size = 1\nmax_turns = 3\n"+
		"[rollout]\nprompt = 'compact'\nthink = false\nmax_tokens = 8\nmax_length = 300\nstaleness = 4\nenv_timeout = 0.5\n"+
		"max_failed = 1\n"+
		"[filter]\nstrategy = 'none'\n[actor]\nlr = 1e-3\nmini_batch = 9\nmicro_batch_tokens = 64\n[analysis]\n"+
		"enabled = true\nevery = 3\nbuckets = 'quantile'\nnum_buckets = 2\n[checkpoint]\nkeep = 0\n",
		tinyPolicy(t), source("milliseconds = 20"), source("milliseconds = 60"),
		source("milliseconds = 5, fails = 0.1, hangs = true"))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// An asynchronous run that is killed again and again goes on with what was under way, no token is older than allowed,
// and its schedule repeats it to the same bits; so does that of a run that waits for its batches.
func TestAsynchronousRunsRepeat(t *testing.T) {
	for _, how := range []string{"recompute", "finish", "keep", "synchronous"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			args := []string{"train", asyncConfig(t, dir), "rollout.on_update=" + how}
			kills, every := orThorough(2, 20), 1
			if how == "keep" { // what is kept ends with a checkpoint
				every = 2
				args = append(args, "run.save_every=2", "rollout.max_tokens=24")
			}
			refill := []string{"algorithm.preset=dapo", "filter.max_batches=2", "filter.strategy=top_p",
				"envs.0.options.flat=true", "envs.1.options.flat=true"}
			if how == "synchronous" {
				args, kills = append(args[:2], "rollout.staleness=0"), 0
			}
			if how != "recompute" && how != "finish" {
				args = append(args, refill...)
			}
			s := storm{random: rand.New(rand.NewPCG(testSeed(t), 0)), log: filepath.Join(dir, "runs/tiny/log.txt"),
				least: 300 * time.Millisecond, most: 1200 * time.Millisecond}
			for !s.over(t, kills) {
				if s.strike(t, gyre(t, dir, append(args, "--resume")...)) {
					os.RemoveAll(filepath.Join(dir, "runs")) // start over, so that all hit a working run
				}
			}
			mustIn(t, dir, append(args, "--resume")...)
			mustIn(t, dir, append(args, "run.name=again", "--replay-schedule", "runs/tiny")...)
			sameCheckpoints(t, filepath.Join(dir, "runs/tiny"), filepath.Join(dir, "runs/again"), every, 8)
			sameTokens(t, filepath.Join(dir, "runs/tiny"), filepath.Join(dir, "runs/again"))
			if how != "recompute" && how != "finish" {
				refills(t, filepath.Join(dir, "runs/tiny"))
			}
			if how != "synchronous" {
				holdsStaleness(t, filepath.Join(dir, "runs/tiny"), 4, how)
				exactLogprobs(t, dir, filepath.Join(dir, "runs/tiny"))
			}
		})
	}
}

// sameCheckpoints holds the weights of a run's checkpoints against another's.
func sameCheckpoints(t *testing.T, want, got string, every, steps int) {
	t.Helper()
	for step := every; step <= steps; step += every {
		name := filepath.Join("global_step_"+strconv.Itoa(step), "actor", "model.safetensors")
		if !bytes.Equal(readFile(t, filepath.Join(want, name)), readFile(t, filepath.Join(got, name))) {
			t.Fatalf("the weights after step %d differ", step)
		}
	}
}

// sameTokens holds what was asked and sampled in a run's steps, whatever ended its processes, against another's.
func sameTokens(t *testing.T, run, other string) {
	t.Helper()
	read := func(dir string) (steps [][2]float64) {
		for record, err := range metrics.Read(filepath.Join(dir, "metrics.jsonl")) {
			if err != nil {
				t.Fatal(err)
			}
			asked, _ := record.Float("rollout/prompt_tokens")
			sampled, _ := record.Float("rollout/new_tokens")
			steps = append(steps, [2]float64{asked, sampled})
		}
		return steps
	}
	if a, b := read(run), read(other); !slices.Equal(a, b) {
		t.Errorf("tokens of prompts and new ones, step by step: %v, repeated %v", a, b)
	}
}

// refills checks that steps play a second batch where the first has too few groups that differ.
func refills(t *testing.T, run string) {
	t.Helper()
	twice := 0
	for record, err := range metrics.Read(filepath.Join(run, "metrics.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		batches, played := record.Float("rollout/batches")
		groups, _ := record.Float("rollout/groups_played")
		kept, _ := record.Float("rollout/filter_kept_count")
		surplus, _ := record.Float("rollout/groups_surplus")
		switch {
		case record.Step == 0:
			continue
		case !played || groups > 6*batches || kept > 6 || kept+surplus > groups || kept < 6 && batches < 2:
			t.Errorf("step %d: %v batches of %v groups, %v left out as too many, %v kept", record.Step, batches, groups, surplus, kept)
		case batches == 2:
			twice++
		}
	}
	if twice == 0 {
		t.Error("no step has played a second batch")
	}
}

// holdsStaleness checks the bound, and that replies go on across updates unless they are to be finished before.
func holdsStaleness(t *testing.T, run string, most float64, how string) {
	t.Helper()
	older := 0.0
	for record, err := range metrics.Read(filepath.Join(run, "metrics.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		if record.Step == 0 {
			continue
		}
		for _, name := range []string{"staleness/mean", "staleness/max", "ratio/ess", "ratio/p99", "timing_s/wait_sampler",
			"timing_s/wait_trainer"} {
			if v, ok := record.Float(name); !ok || v < 0 {
				t.Errorf("step %d: %s is %v", record.Step, name, record.Values[name])
			}
		}
		stale, _ := record.Float("staleness/max")
		if older = max(older, stale); stale > most {
			t.Errorf("step %d: tokens are %v steps old", record.Step, stale)
		}
	}
	if older == 0 {
		t.Error("no token was drawn before the step that trained on it")
	}
	mixed := 0
	for _, e := range rolloutsOf(t, run) {
		mixed += len(e.Mixed)
		for _, r := range e.Versions[min(1, len(e.Versions)):] {
			inside := slices.ContainsFunc(e.Turns, func(turn episode.Turn) bool { return turn.Reply < r.Token && r.Token < turn.End })
			if inside && how == "finish" {
				t.Errorf("step %d, episode %d: the weights changed within a reply, at token %d", e.Step, e.Index, r.Token)
			}
		}
	}
	if (mixed > 0) != (how == "keep") {
		t.Errorf("%d parts of replies were drawn with keys and values of older weights", mixed)
	}
}

func rolloutsOf(t *testing.T, run string) (all []*episode.Episode) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(run, "rollouts/step_*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of episodes: %v", len(files), err)
	}
	for _, file := range files {
		episodes, err := episode.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, episodes...)
	}
	return all
}

// exactLogprobs scores every token with the checkpoint of the version that drew it: no bit is another.
func exactLogprobs(t *testing.T, dir, run string) {
	t.Helper()
	episodes := rolloutsOf(t, run)
	checked, mixed, apart := 0, 0, 0
	for version := 0; version < 8; version++ {
		model := filepath.Join(run, "global_step_"+strconv.Itoa(version), "actor")
		if version == 0 {
			model = tinyPolicy(t)
		} else if _, err := os.Stat(model); err != nil {
			continue // not saved
		}
		var rows []byte
		var drew []*episode.Episode
		for _, e := range episodes {
			if slices.ContainsFunc(e.Versions, func(r episode.Run) bool { return r.Version == version }) {
				row, _ := json.Marshal(map[string]any{"ids": e.IDs})
				rows = append(append(rows, row...), '\n')
				drew = append(drew, e)
			}
		}
		if len(drew) == 0 {
			continue
		}
		input := filepath.Join(dir, "rows.jsonl")
		if err := os.WriteFile(input, rows, 0o644); err != nil {
			t.Fatal(err)
		}
		out := mustIn(t, dir, "score", "--model", model, "--dtype", "float32", "--input", input)
		for i, line := range strings.Split(strings.TrimSpace(out), "\n") {
			var row struct{ Logprobs []*float32 }
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			e := drew[i]
			for token, sampled := range e.Mask {
				at, _ := slices.BinarySearchFunc(e.Versions, token+1, func(r episode.Run, t int) int { return cmp.Compare(r.Token, t) })
				older := slices.ContainsFunc(e.Mixed, func(part [2]int) bool { return part[0] <= token && token < part[1] })
				if !sampled || e.Versions[at-1].Version != version {
					continue
				}
				if older {
					if mixed++; *row.Logprobs[token] != e.Logprob[token] {
						apart++
					}
					continue
				}
				if checked++; *row.Logprobs[token] != e.Logprob[token] {
					t.Fatalf("step %d, episode %d, token %d: %v, but version %d gives %v", e.Step, e.Index, token,
						e.Logprob[token], version, *row.Logprobs[token])
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d tokens were compared", checked)
	}
	if mixed > 0 && apart == 0 {
		t.Errorf("none of %d tokens tells that older weights computed its keys and values", mixed)
	}
}

// What cannot be done is refused by its key.
func TestAsynchronyIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	config := asyncConfig(t, dir)
	for override, want := range map[string]string{"rollout.staleness=-1": "rollout.staleness",
		"rollout.replies=action": "rollout.staleness", "rollout.on_update=never": "rollout.on_update"} {
		if code, _, stderr := runIn(t, dir, "train", config, override); code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s; want 2 and %q", override, code, stderr, want)
		}
	}
	code, _, stderr := runIn(t, dir, "train", config, "--replay-schedule", "nowhere")
	if code == 0 || !strings.Contains(stderr, "nowhere/schedule.jsonl") {
		t.Errorf("a schedule that is not there: exit code %d, %s", code, stderr)
	}
}
