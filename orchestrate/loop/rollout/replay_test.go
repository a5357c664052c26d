package rollout

import (
	"context"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/torch"
)

// An episode that is replayed shows the state after every turn, whatever the policy was shown.
func TestReplayDrawsWhatWasPlayed(t *testing.T) {
	replies := []string{"x</think><answer>right</answer>" + eos, "no answer" + eos,
		"go</think><answer>Right</answer>" + eos}
	tok := tokenizer(t)
	sampler := &script{t: t, tokenizer: tok, reply: func(_ uint64, turn int) string { return replies[turn] }}
	plan := Plan{Stream: Train, Step: 1, Sources: []config.Env{source(1, 1, nil)}, EnvSeed: 3,
		Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	p := player(t, sampler, defaults())
	episodes, _, err := p.Play(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	e := episodes[0]
	frames, err := p.Replay(context.Background(), plan.Sources[0], e)
	if err != nil {
		t.Fatal(err)
	}
	if len(frames) != len(e.Turns)+1 {
		t.Fatalf("%d frames of %d turns", len(frames), len(e.Turns))
	}
	total := 0.0
	for i, f := range frames {
		total += f.Reward
		if i > 0 && len(f.Actions) == 1 && f.Board == frames[i-1].Board {
			t.Errorf("frame %d shows no change after %v: %q", i, f.Actions, f.Board)
		}
		if i > 0 && strings.Contains(replies[i-1], "no answer") && (len(f.Actions) != 0 ||
			f.Board != frames[i-1].Board) {
			t.Errorf("frame %d: %+v after a reply without actions", i, f)
		}
	}
	if total != e.Metrics["episodic_return"] {
		t.Errorf("the frames' rewards add up to %v, the episode earned %v", total, e.Metrics["episodic_return"])
	}
}

// Where an estimator asks for it, an episode says in which state each turn began, whatever else its prompt said: a step
// right and one left lead back to the first state.
func TestStatesOfTurnsAreKept(t *testing.T) {
	rollout := defaults()
	rollout.Prompt, rollout.Think = "compact", false
	for _, keep := range []bool{true, false} {
		sampler := &script{t: t, tokenizer: tokenizer(t), forgets: true,
			reply: func(_ uint64, turn int) string { return []string{right, left, right}[turn] + eos }}
		p := player(t, sampler, rollout)
		p.KeepStates(keep)
		episodes, _, err := p.Play(t.Context(), Plan{Stream: Train, EnvSeed: 3,
			Sources: []config.Env{source(1, 1, nil)}, Sampling: torch.Sampling{Temperature: 1, TopP: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if got := episodes[0].States; !keep && got != nil ||
			keep && (len(got) != 3 || got[0] != got[2] || got[0] == got[1]) {
			t.Errorf("kept %v: states %v", keep, got)
		}
	}
}
