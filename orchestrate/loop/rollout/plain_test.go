package rollout

import (
	"context"
	"strings"
	"testing"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/torch"
)

// listener takes any text and remembers it.
type listener struct{ corridor }

var heard = make(chan string, 1)

func (l *listener) Reset(ctx context.Context, seed int64, member int) (envs.Start, error) {
	start, err := l.corridor.Reset(ctx, seed, member)
	start.Actions = nil
	return start, err
}

func (*listener) Step(_ context.Context, text string) (envs.Result, error) {
	heard <- text
	return envs.Result{Reward: 2, Done: true, Success: true, Valid: true}, nil
}

func init() {
	envs.Register(envs.Spec{
		Tag: "listener", Type: "listener", MaxActions: 1, PlainReplies: true,
		NewOptions: func() any { return new(struct{}) },
		New:        func(any) (envs.Env, error) { return &listener{corridor{options: &corridorOptions{}}}, nil },
	})
}

// A plain reply reaches the environment as it was said, and no prompt asks for another form.
func TestPlainReplies(t *testing.T) {
	tok := tokenizer(t)
	const said = " Up || <answer>Down</answer>, or so "
	sampler := &script{t: t, tokenizer: tok, reply: func(uint64, int) string { return said + eos }}
	from := source(1, 1, nil)
	from.Tag = "listener"
	plan := Plan{Stream: Train, Sources: []config.Env{from}, Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	episodes, _, err := player(t, sampler, defaults()).Play(context.Background(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if text := <-heard; text != said {
		t.Errorf("the environment heard %q, want %q", text, said)
	}
	e := episodes[0]
	if e.Score != 2 || !e.Success {
		t.Errorf("score %v, success %v, want 2 and true: a plain reply earns no format penalty", e.Score, e.Success)
	}
	prompt := tok.Decode(e.IDs[:e.Turns[0].Reply], false)
	if strings.Contains(prompt, "<answer>") || strings.Contains(prompt, "<think>") {
		t.Errorf("the prompt asks for a form: %q", prompt)
	}
	shown, err := player(t, nil, defaults()).Demonstrations(context.Background(),
		DemonstrationPlan{Envs: []config.Env{from}, Episodes: 1})
	if err != nil || len(shown) != 1 {
		t.Fatalf("%d demonstrations of plain replies, %v", len(shown), err)
	}
	turn := shown[0].Turns[0]
	if reply := tok.Decode(shown[0].IDs[turn.Reply:turn.End-1], false); reply != <-heard || reply == "" {
		t.Errorf("the expert's reply is %q, not the action that the environment heard", reply)
	}
}
