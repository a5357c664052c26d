package rollout

import (
	"regexp"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// Sources of one run have their own separators and limits: of actions per turn and episode, of turns, and of tokens
// per reply.
func TestSourcesHaveTheirOwnLimits(t *testing.T) {
	const reply = "Right;Right;Right||Right</answer>"
	of := func(separator string, perTurn, actions, turns, tokens int) config.Env {
		e := source(1, 1, nil)
		e.ActionSeparator, e.MaxActionsPerTurn, e.MaxActions, e.MaxTurns, e.MaxTokens = separator, perTurn, actions,
			turns, tokens
		return e
	}
	cases := []struct {
		source config.Env
		shown  string // by the prompts: the cell, and the actions left
		stop   string
		earned float64 // with a penalty of a quarter for every reply that names something unknown
		tokens int
	}{
		// A corridor of five cells. What is beyond the actions of a turn is not looked at, and costs nothing.
		{of(";", 2, 0, 3, 40), "0 6, 2 4", episode.Terminated, 0.7, 40},
		// Three cells. The one action that is read, between other separators, is no name.
		{of("", 1, 0, 2, 0), "0 6, 0 6", episode.Turns, -0.5, 64},
		// Four cells. The third action of the reply is read too, and it is no name: dropped, and the reply pays.
		{of(";", 3, 0, 1, 0), "0 6", episode.Turns, -0.45, 64},
		// Five cells. The first of two actions is no name.
		{of("", 2, 0, 3, 0), "0 6, 1 5, 2 4", episode.Turns, -1.05, 64},
		// Three cells. The episode has one action, the turn two.
		{of(";", 2, 1, 3, 30), "0 1", episode.Actions, -0.1, 30},
	}
	rollout := defaults()
	rollout.Think = false
	plan := Plan{Stream: Train, EnvSeed: 2, Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	for _, c := range cases {
		plan.Sources = append(plan.Sources, c.source)
	}
	sampler := &script{t: t, tokenizer: tokenizer(t), reply: func(uint64, int) string { return reply + eos }}
	episodes, _, err := player(t, sampler, rollout).Play(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	prompts := regexp.MustCompile(`cell (\d+) of \d+\s[^<]*?You have (\d+) action`)
	for i, c := range cases {
		e := episodes[i]
		var shown []string
		for _, m := range prompts.FindAllStringSubmatch(tokenizer(t).Decode(e.IDs, false), -1) {
			shown = append(shown, m[1]+" "+m[2])
		}
		if got := strings.Join(shown, ", "); got != c.shown || e.Stop != c.stop || !near(e.Return(), c.earned) {
			t.Errorf("source %d: the prompts show %q, it ended with %s and %v, want %q, %s and %v", i, got, e.Stop,
				e.Return(), c.shown, c.stop, c.earned)
		}
		if got := sampler.sampling[uint64(i)+1].MaxTokens; got != c.tokens {
			t.Errorf("source %d: replies of %d tokens, want %d", i, got, c.tokens)
		}
	}
}

// A reply that was cut off at its limit holds no action, and pays for it.
func TestRepliesThatAreCutOff(t *testing.T) {
	sampler := &script{t: t, tokenizer: tokenizer(t), finish: torch.FinishLength,
		reply: func(_ uint64, turn int) string {
			return []string{"I think</think><answer>Right", "</think><answer>Right||Right</answer> and"}[turn]
		}}
	e := source(1, 1, nil)
	e.MaxTurns = 2
	episodes, _, err := player(t, sampler, defaults()).Play(t.Context(),
		Plan{Stream: Train, EnvSeed: 3, Sources: []config.Env{e},
			Sampling: torch.Sampling{Temperature: 1, TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	// The second one, of three cells' corridor, was complete before its end was cut.
	if got := episodes[0]; !got.Success || !near(got.Return(), -0.25-0.1+1) ||
		got.Metrics["manager_invalid_action"] != 0.5 {
		t.Errorf("success %v, return %v, metrics %v", got.Success, got.Return(), got.Metrics)
	}
}
