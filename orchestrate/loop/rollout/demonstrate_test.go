package rollout

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	_ "gyre/envs/tools"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// TestDemonstrationsAreWhatPlayWouldMake replays every demonstration's replies through the agent loop.
func TestDemonstrationsAreWhatPlayWouldMake(t *testing.T) {
	for name, change := range map[string]func(*config.Rollout){
		"chat, think":       func(*config.Rollout) {},
		"compact, no think": func(r *config.Rollout) { r.Prompt, r.Think = "compact", false },
	} {
		t.Run(name, func(t *testing.T) {
			rollout := defaults()
			change(&rollout)
			tok := tokenizer(t)
			shown, err := player(t, nil, rollout).Demonstrations(context.Background(),
				DemonstrationPlan{Envs: []config.Env{source(1, 1, nil)}, Seed: 3, Episodes: 5})
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range shown {
				sampler := &script{t: t, tokenizer: tok, reply: func(_ uint64, turn int) string {
					return tok.Decode(want.IDs[want.Turns[turn].Reply:want.Turns[turn].End], false)
				}}
				played, _, err := player(t, sampler, rollout).Play(context.Background(),
					Plan{Stream: Train, Sources: []config.Env{source(1, 1, nil)}, EnvSeed: want.Seed,
						Sampling: torch.Sampling{}})
				if err != nil {
					t.Fatal(err)
				}
				got := played[0]
				if want.Seed != int64(3+i) || !want.Success || want.Logprob != nil {
					t.Errorf("demonstration %d: seed %d, success %v, log-probs %v", i, want.Seed, want.Success,
						want.Logprob)
				}
				got.Index, got.Group, got.Logprob, got.Versions, got.Metrics, want.Metrics = want.Index, want.Group, nil, nil, nil,
					nil
				if !reflect.DeepEqual(got, want) {
					t.Errorf("played %+v\nshown  %+v", got, want)
				}
			}
		})
	}
}

func TestATeachersMistakesAreTrainedOn(t *testing.T) {
	show := func(mistakes float64) (success int) {
		shown, err := player(t, nil, defaults()).Demonstrations(context.Background(),
			DemonstrationPlan{Envs: []config.Env{source(1, 1, nil)}, Seed: 3, Episodes: 200, Mistakes: mistakes})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range shown {
			for _, turn := range e.Turns {
				if slices.Contains(e.Mask[turn.Reply:turn.End], false) {
					t.Fatalf("episode %d: a reply is not trained on", e.Index)
				}
			}
			if e.Success {
				success++
			}
		}
		return success
	}
	flawless := show(0)
	if erring := show(0.7); flawless != 200 || erring > 150 || erring < 20 {
		t.Errorf("the expert solved %d of 200, with mistakes in seven turns of ten %d", flawless, erring)
	}
}

func TestNoisyTurnsAreShownButNotTrainedOn(t *testing.T) {
	show := func(noise float64) []*episode.Episode {
		shown, err := player(t, nil, defaults()).Demonstrations(context.Background(),
			DemonstrationPlan{Envs: []config.Env{source(1, 1, nil)}, Seed: 3, Episodes: 40, Noise: noise})
		if err != nil {
			t.Fatal(err)
		}
		return shown
	}
	noisy := show(0.5)
	mistakes, tok := 0, tokenizer(t)
	for _, e := range noisy {
		if !slices.Contains(e.Mask, true) {
			t.Errorf("episode %d has nothing to learn from", e.Index)
		}
		for _, turn := range e.Turns {
			reply, trained := e.IDs[turn.Reply:turn.End], e.Mask[turn.Reply]
			if slices.Contains(e.Mask[turn.Reply:turn.End], !trained) {
				t.Errorf("episode %d: a reply is trained on in part", e.Index)
			}
			if text := tok.Decode(reply, false); strings.Contains(text, "Left") {
				mistakes++
				if trained {
					t.Errorf("episode %d trains on the mistake %q", e.Index, text)
				}
			}
		}
	}
	if mistakes == 0 {
		t.Error("no random action went the wrong way")
	}
	if !reflect.DeepEqual(noisy, show(0.5)) {
		t.Error("the same demonstrations differ when shown again")
	}
}

// The expert of a tool calls it and answers: its call ends where sampling would, and what the tool says is not learned.
func TestToolDemonstrations(t *testing.T) {
	tok := tokenizer(t)
	for _, think := range []bool{true, false} {
		rollout := defaults()
		rollout.Think = think
		shown, err := player(t, nil, rollout).Demonstrations(context.Background(),
			DemonstrationPlan{Seed: 3, Episodes: 5,
				Envs: []config.Env{{Tag: "CalculatorQA", MaxTurns: 3, MaxActionsPerTurn: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range shown {
			if !e.Success || len(e.Turns) != 2 {
				t.Fatalf("episode %d: success %v, %d turns\n%s", e.Index, e.Success, len(e.Turns),
					tok.Decode(e.IDs, false))
			}
			call, answer := tok.Decode(e.IDs[e.Turns[0].Reply:e.Turns[0].End], false),
				tok.Decode(e.IDs[e.Turns[1].Reply:e.Turns[1].End], false)
			between := tok.Decode(e.IDs[e.Turns[0].End:e.Turns[1].Reply], false)
			number := strings.TrimSuffix(strings.TrimPrefix(answer, "<answer>"), "</answer>"+eos)
			if !strings.HasPrefix(call, "<tool_call>") || !strings.HasSuffix(call, "</tool_call>") ||
				number == answer || !strings.Contains(between, number) {
				t.Errorf("the call %q, then %q, the answer %q", call, between, answer)
			}
			if slices.Contains(e.Mask[e.Turns[0].End:e.Turns[1].Reply], true) {
				t.Error("what the tool says is learned")
			}
		}
	}
}

// Where actions have no names nobody can err at random: the expert's own replies are shown.
func TestMistakesNeedNamedActions(t *testing.T) {
	show := func(plan DemonstrationPlan) []*episode.Episode {
		plan.Seed, plan.Episodes, plan.Envs = 3, 5, []config.Env{{Tag: "CalculatorQA", MaxTurns: 3,
			MaxActionsPerTurn: 1}}
		shown, err := player(t, nil, defaults()).Demonstrations(context.Background(), plan)
		if err != nil {
			t.Fatal(err)
		}
		return shown
	}
	flawless := show(DemonstrationPlan{})
	for _, plan := range []DemonstrationPlan{{Noise: 0.9}, {Mistakes: 0.9}} {
		if !reflect.DeepEqual(show(plan), flawless) {
			t.Errorf("%+v changes demonstrations whose actions have no names", plan)
		}
	}
}

// A demonstration ends with the stop token that the template writes at the end of a turn, not with the first one that
// there is.
func TestDemonstrationsEndAsTheTemplateEndsTurns(t *testing.T) {
	tok := load(t)
	if err := tok.SetTemplate(strings.ReplaceAll(chat.ChatML, "<|im_end|>", "<|im_start|>")); err != nil {
		t.Fatal(err)
	}
	p := player(t, nil, defaults())
	p.tokenizer, p.stopIDs = tok, []int32{257, 256}
	shown, err := p.Demonstrations(context.Background(),
		DemonstrationPlan{Envs: []config.Env{source(1, 1, nil)}, Seed: 3, Episodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if turn := shown[0].Turns[0]; shown[0].IDs[turn.End-1] != 256 {
		t.Errorf("the reply ends with token %d, the template's turns with 256", shown[0].IDs[turn.End-1])
	}
}

func TestDemonstrationsNeedAnExpertThatSucceeds(t *testing.T) {
	p := player(t, nil, defaults())
	broken := DemonstrationPlan{Envs: []config.Env{source(1, 1, map[string]any{"fault": "reset"})}, Seed: 3,
		Episodes: 4}
	shown, err := p.Demonstrations(context.Background(), broken) // even seeds have no level
	if err != nil {
		t.Fatal(err)
	}
	if len(shown) != 4 {
		t.Errorf("%d demonstrations, want 4", len(shown))
	}
	for i, e := range shown {
		if e.Seed != int64(3+2*i) {
			t.Errorf("demonstration %d is of seed %d, want %d", i, e.Seed, 3+2*i)
		}
	}
	hopeless := DemonstrationPlan{Envs: []config.Env{source(1, 1, map[string]any{"fault": "levels"})}, Seed: 4,
		Episodes: 2}
	if _, err := p.Demonstrations(context.Background(), hopeless); err == nil ||
		!strings.Contains(err.Error(), "only 0 of 2 demonstrations after 142 levels: environment corridor: 142 "+
			"episodes failed (error)") {
		t.Errorf("without any level: %v", err)
	}
	silent := source(1, 1, nil)
	silent.Tag = "mute"
	if _, err := p.Demonstrations(context.Background(),
		DemonstrationPlan{Envs: []config.Env{silent}, Episodes: 1}); err == nil ||
		!strings.Contains(err.Error(), "mute: the environment has no expert") {
		t.Errorf("got %v, want an error that says there is no expert", err)
	}
}
