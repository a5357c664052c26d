package rollout

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// TestTwoTurnsTokenByToken writes a whole episode down by hand.
func TestTwoTurnsTokenByToken(t *testing.T) {
	replies := []string{
		" I look around.</think> <answer> right || Jump </answer>" + eos, // one legal action, one unknown: penalty
		"go</think><answer>Right</answer>" + eos,
	}
	tok := tokenizer(t)
	sampler := &script{t: t, tokenizer: tok, reply: func(_ uint64, turn int) string { return replies[turn] }}
	plan := Plan{Stream: Train, Step: 9, Sources: []config.Env{source(1, 1, nil)}, EnvSeed: 3,
		Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	episodes, stats, err := player(t, sampler, defaults()).Play(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	const format = "Write your reply in the form <think>your reasoning</think><answer>Right || Left</answer>, with " +
		"actions of your own choice, and add nothing around it." +
		" Replies in another form are not carried out. Use at most 20 words."
	spans := []struct {
		text   string
		markup bool // template and policy may use special tokens
		policy bool
	}{
		{"<|im_start|>system\n", true, false},
		{"You are a thoughtful assistant who solves tasks step by step.\n\nWalk to the last cell.\n\n" +
			"Actions you can choose from: Left, Right.\n" +
			"In total you may take 6 actions, up to 2 in one reply with \"||\" between them.", false, false},
		{"<|im_end|>\n<|im_start|>user\n", true, false},
		{"Turn 1\nState:\ncell 0 of 3\n\nYou have 6 actions left. " + format, false, false},
		{"<|im_end|>\n<|im_start|>assistant\n<think>", true, false},
		{replies[0], true, true},
		{"\n<|im_start|>user\n", true, false},
		{"Reward: -0.1\n\nTurn 2\nState:\ncell 1 of 3\n\nYou have 5 actions left. " + format, false, false},
		{"<|im_end|>\n<|im_start|>assistant\n<think>", true, false},
		{replies[1], true, true},
	}
	want := &episode.Episode{Step: 9, Tag: "corridor", Seed: 3, Success: true, Stop: "terminated"}
	var turn episode.Turn
	for _, span := range spans {
		encode := tok.EncodeMarkup
		if !span.markup {
			encode = tok.EncodeOrdinary
		}
		ids, err := encode(span.text)
		if err != nil {
			t.Fatal(err)
		}
		if span.policy {
			turn.Reply = len(want.IDs)
		}
		for i, id := range ids {
			want.IDs = append(want.IDs, id)
			want.Mask = append(want.Mask, span.policy)
			want.Logprob = append(want.Logprob, 0)
			if span.policy {
				want.Logprob[len(want.Logprob)-1] = -float32(i+1) / 16
			}
		}
		if span.policy {
			turn.End = len(want.IDs)
			want.Turns = append(want.Turns, turn)
			turn.Observation = turn.End
		}
	}
	want.Rewards = []episode.Reward{{Token: want.Turns[0].End - 1, Value: -0.1 - 0.25},
		{Token: want.Turns[1].End - 1, Value: 1}}
	want.Score = want.Return()
	want.Metrics = map[string]float64{
		"success": 1, "num_actions": 2, "num_turns": 2, "episodic_return": 0.9, "pass@1": 1,
		"manager_invalid_action": 0,
		"action_is_valid":        1, "action_is_effective": 1, "cell": 1.5, "final_cell": 2,
	}
	want.Versions = []episode.Run{{Token: want.Turns[0].Reply, Version: 8}}
	got := episodes[0]
	if text, wantText := tok.Decode(got.IDs, false), tok.Decode(want.IDs, false); text != wantText {
		t.Errorf("text\n%s\nwant\n%s", text, wantText)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := got.Check(); err != nil {
		t.Error(err)
	}
	if stats.Turns != 2 || stats.NewTokens != got.PolicyTokens() || stats.CachedTokens != want.Turns[0].End ||
		stats.PromptTokens != want.Turns[0].Reply+want.Turns[1].Reply {
		t.Errorf("stats %+v", stats)
	}
}

func TestHowEpisodesEnd(t *testing.T) {
	reply := func(answer string) string { return "</think><answer>" + answer + "</answer>" + eos }
	for name, c := range map[string]struct {
		answers []string // of the turns, the last one repeated
		stop    string
		score   float64
		turns   int
		success bool
	}{
		"success": {answers: []string{"Right || Right"}, stop: episode.Terminated, score: -0.1 + 1,
			turns: 1, success: true},
		"turn budget":   {answers: []string{"Left"}, stop: episode.Turns, score: -0.3, turns: 3},
		"action budget": {answers: []string{"Left||Left"}, stop: episode.Actions, score: -0.6, turns: 3},
		"nothing readable": {answers: []string{"jump", "", "up || down"}, stop: episode.Turns, score: -0.75,
			turns: 3},
		"surplus actions cut": {answers: []string{"Left || Left || Right", "Right || Right || jump"},
			stop: episode.Terminated, score: -0.2 - 0.1 + 1, turns: 2, success: true},
	} {
		t.Run(name, func(t *testing.T) {
			tok := tokenizer(t)
			sampler := &script{t: t, tokenizer: tok, reply: func(_ uint64, turn int) string {
				return reply(c.answers[min(turn, len(c.answers)-1)])
			}}
			plan := Plan{Stream: Train, Sources: []config.Env{source(1, 1, nil)}, EnvSeed: 6}
			episodes, stats, err := player(t, sampler, defaults()).Play(context.Background(), plan)
			if err != nil {
				t.Fatal(err)
			}
			e := episodes[0]
			if e.Stop != c.stop || !near(e.Score, c.score) || len(e.Turns) != c.turns || e.Success != c.success {
				t.Errorf("stop %s, score %v, %d turns, success %v; want %+v", e.Stop, e.Score, len(e.Turns), e.Success,
					c)
			}
			if len(stats.Failures) != 0 || stats.Stops[c.stop] != 1 {
				t.Errorf("failures %v, stops %v", stats.Failures, stats.Stops)
			}
			if err := e.Check(); err != nil {
				t.Error(err)
			}
			if len(e.Turns) > 0 && e.Turns[len(e.Turns)-1].End != len(e.IDs) {
				t.Errorf("the episode goes on for %d tokens after its last reply",
					len(e.IDs)-e.Turns[len(e.Turns)-1].End)
			}
		})
	}
}

func near(a, b float64) bool { return max(a-b, b-a) < 1e-9 }

// TestOrderDoesNotMatter plays one batch with replies and environments ready in many different orders.
func TestOrderDoesNotMatter(t *testing.T) {
	answers := []string{"Right", "Left || Right", "nothing", "Right || Right", "Right || up"}
	play := func(seed uint64, faulty bool) []*episode.Episode {
		sampler := &script{t: t, tokenizer: tokenizer(t), reply: func(id uint64, turn int) string {
			return "hm</think><answer>" + answers[(int(id)*7+turn)%len(answers)] + "</answer>" + eos
		}}
		fault := ""
		if faulty {
			fault, sampler.shuffle = "jitter", rand.New(rand.NewPCG(seed, 0))
		}
		rollout := defaults()
		rollout.Normalize = "mean_std"
		plan := Plan{Stream: Train, Step: 2, EnvSeed: 10000,
			Sources: []config.Env{source(3, 4, map[string]any{"fault": fault}),
				source(2, 2, map[string]any{"fault": fault})}}
		var progress []int
		plan.Progress = func(done, total int) { progress = append(progress, done) }
		episodes, _, err := player(t, sampler, rollout).Play(context.Background(), plan)
		if err != nil {
			t.Fatal(err)
		}
		if len(progress) != 16 || !slices.IsSorted(progress) {
			t.Errorf("progress %v", progress)
		}
		return episodes
	}
	want := play(0, false)
	for i, e := range want {
		group := i / 4
		if i >= 12 {
			group = 3 + (i-12)/2
		}
		if e.Index != i || e.Group != group || e.Seed != 10000+int64(group) {
			t.Errorf("episode %d: index %d, group %d, seed %d", i, e.Index, e.Group, e.Seed)
		}
	}
	for seed := range uint64(8) {
		if got := play(seed, true); !reflect.DeepEqual(got, want) {
			t.Fatalf("order %d gives other episodes", seed)
		}
	}
}

// TestNoEpisodeWaitsForAnothersEnvironment: one environment answers only when all other episodes are over.
func TestNoEpisodeWaitsForAnothersEnvironment(t *testing.T) {
	sampler := &script{t: t, tokenizer: tokenizer(t), reply: func(uint64,
		int) string {
		return "</think><answer>Right</answer>" + eos
	}}
	rollout := defaults()
	rollout.EnvTimeout = 10
	plan := Plan{Stream: Train, Sources: []config.Env{source(1, 1, map[string]any{"fault": "release"}),
		source(3, 2, nil)}}
	plan.Progress = func(done, total int) {
		if done == total-1 {
			release <- struct{}{}
		}
	}
	episodes, stats, err := player(t, sampler, rollout).Play(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if episodes[0].Stop == episode.Timeout || len(stats.Failures) != 0 || stats.EnvWait == 0 {
		t.Errorf("the slow episode ended with %q, %v", episodes[0].Stop, stats)
	}
}

func TestEpisodeThatWouldGrowTooLong(t *testing.T) {
	tok := tokenizer(t)
	left := "</think><answer>Left</answer>" + eos
	play := func(maxLength int) ([]*episode.Episode, error) {
		rollout := defaults()
		rollout.MaxLength = maxLength
		sampler := &script{t: t, tokenizer: tok, reply: func(uint64, int) string { return left }}
		episodes, _, err := player(t, sampler, rollout).Play(context.Background(),
			Plan{Stream: Train, Sources: []config.Env{source(1, 1, nil)}})
		return episodes, err
	}
	full, err := play(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	second := full[0].Turns[1].Reply + defaults().MaxTokens // what turn 2 needs
	for limit, turns := range map[int]int{second: 2, second - 1: 1} {
		episodes, err := play(limit)
		if err != nil {
			t.Fatal(err)
		}
		e := episodes[0]
		if e.Stop != episode.Length || len(e.Turns) != turns || len(e.IDs) != full[0].Turns[turns-1].End {
			t.Errorf("max_length %d: stop %s, %d turns, %d tokens; want length, %d turns", limit, e.Stop, len(e.Turns),
				len(e.IDs), turns)
		}
	}
	if _, err := play(full[0].Turns[0].Reply + 10); err == nil || !strings.Contains(err.Error(), "rollout.max_length") {
		t.Errorf("first prompt too long: got %v, want an error about rollout.max_length", err)
	}
}

// A sampler that refuses a request ends the round, and environments that were in use are given back.
func TestRefusedRequestsEndTheRound(t *testing.T) {
	refused := errors.New("no room")
	for _, groups := range []int{1, 40} {
		sampler := &script{t: t, tokenizer: tokenizer(t), submitErr: refused}
		_, _, err := player(t, sampler, defaults()).Play(t.Context(),
			Plan{Stream: Train, Sources: []config.Env{source(groups, 1, nil)}})
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), "corridor episode") {
			t.Errorf("%d groups: %v", groups, err)
		}
	}
	p, sampler := saying(t, nil, "abc", "abc")
	sampler.stepErr = refused
	made, closed := judgesMade.Load(), judgesClosed.Load()
	if _, _, err := judged(t, p, nil); !errors.Is(err, refused) {
		t.Errorf("got %v", err)
	}
	if err := p.Close(); err != nil || judgesMade.Load() == made ||
		judgesMade.Load()-made != judgesClosed.Load()-closed {
		t.Errorf("%d environments were made and %d closed (%v)", judgesMade.Load()-made, judgesClosed.Load()-closed,
			err)
	}
}

// What went wrong with an episode's prompt ends the round, whether somebody waited for it or it was there before that.
func TestFailuresAreSeenWheneverTheyCome(t *testing.T) {
	failed := errors.New("no cell")
	for _, wait := range []time.Duration{0, 20 * time.Millisecond} {
		workers := startWorkers(t.Context(), 1, 1)
		if wait == 0 {
			workers.done <- result{err: failed}
		} else {
			time.AfterFunc(wait, func() { workers.done <- result{err: failed} })
		}
		if err := (&floor{player: &Player{}, away: 1, workers: workers}).collect(t.Context()); !errors.Is(err, failed) {
			t.Errorf("after %v: %v", wait, err)
		}
		workers.running.Wait()
	}
}

// Replies are cut off at max_tokens unless they end there by themselves.
func TestLastReplies(t *testing.T) {
	p := player(t, nil, defaults())
	const most = 64 // of defaults
	long := slices.Repeat([]int32{'a'}, most)
	end := append(slices.Clone(long[1:]), 257)
	for _, x := range []struct {
		name  string
		reply []int32
		text  int
		cut   bool
	}{{"cut", long, most, true}, {"shorter", long[1:], most - 1, false}, {"ended in time", end, most - 1, false},
		{"empty", nil, 0, false}} {
		e := &episode.Episode{IDs: append([]int32{1, 2}, x.reply...),
			Turns: []episode.Turn{{Reply: 2, End: 2 + len(x.reply)}}}
		if text := p.LastReply(e); text != strings.Repeat("a", x.text) {
			t.Errorf("%s: %q", x.name, text)
		}
		if cut := len(x.reply) > 0 && p.cut(x.reply, most); cut != x.cut {
			t.Errorf("%s: cut %v", x.name, cut)
		}
	}
	if got := p.lengths([]int32{'a', 257, 'b', 257}); !slices.Equal(got, []int{1, len(eos), 1, 0}) {
		t.Errorf("bytes of each token: %v; only the token that ends the reply has none", got)
	}
}

func TestInterruptLeavesNothingBehind(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stopped := errors.New("no power")
	for name, c := range map[string]struct {
		sampler *script
		want    error
	}{
		"cancelled":     {&script{reply: func(uint64, int) string { cancel(); return "x" + eos }}, context.Canceled},
		"sampler fails": {&script{reply: func(uint64, int) string { return "x" + eos }, stepErr: stopped}, stopped},
	} {
		t.Run(name, func(t *testing.T) {
			c.sampler.t, c.sampler.tokenizer, c.sampler.shuffle = t, tokenizer(t), rand.New(rand.NewPCG(1, 1))
			within := context.Background()
			if c.want == context.Canceled {
				within = ctx
			}
			plan := Plan{Stream: Train, Sources: []config.Env{source(4, 4, nil)}}
			_, _, err := player(t, c.sampler, defaults()).Play(within, plan)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if len(c.sampler.waiting) != 0 {
				t.Errorf("%d requests left", len(c.sampler.waiting))
			}
		})
	}
}

// TestAbandonedEnvironmentIsClosedByItsOwnCall: nothing else may touch it, or the race detector would tell.
func TestAbandonedEnvironmentIsClosedByItsOwnCall(t *testing.T) {
	before := closedLate.Load()
	rollout := defaults()
	rollout.EnvTimeout = 0.2
	sampler := &script{t: t, tokenizer: tokenizer(t), reply: func(uint64,
		int) string {
		return "</think><answer>Left||Left</answer>" + eos
	}}
	plan := Plan{Stream: Train, Sources: []config.Env{source(1, 1, map[string]any{"fault": "release"})}}
	sampler.again = true
	p := player(t, sampler, rollout)
	_, stats, err := p.Play(context.Background(), plan)
	if err != nil || stats.Failed[episode.Timeout] != 2 || closedLate.Load() != before {
		t.Fatalf("failed %v, error %v, %d closed", stats.Failed, err, closedLate.Load()-before)
	}
	release <- struct{}{}
	release <- struct{}{}
	for deadline := time.Now().Add(5 * time.Second); closedLate.Load()-before != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the environment was not closed after its call returned")
		}
	}
}

func TestUnknownTagAndOptionAreReported(t *testing.T) {
	p := player(t, &script{t: t, tokenizer: tokenizer(t)}, defaults())
	wrong := source(1, 1, nil)
	wrong.Tag = "corridr"
	for want, s := range map[string]config.Env{"corridr": wrong, "fualt": source(1, 1, map[string]any{"fualt": "x"})} {
		if _, _, err := p.Play(context.Background(), Plan{Sources: []config.Env{s}}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %q", err, want)
		}
	}
}
