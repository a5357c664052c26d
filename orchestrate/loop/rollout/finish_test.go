package rollout

import (
	"context"
	"errors"
	"testing"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// examined is a corridor whose end is judged by the cell that was reached.
type examined struct{ *corridor }

func (j examined) Finish(context.Context) (envs.Result, error) {
	if j.options.Fault == "unfinished" {
		return envs.Result{}, errors.New("no judge")
	}
	return envs.Result{Reward: 10 * float64(j.at), Done: true, Success: j.at > 0,
		Info: map[string]float64{"final_judged": 1}}, nil
}

func init() {
	envs.Register(envs.Spec{
		Tag: "judged", Type: "corridor", MaxActions: 2, MaxReplyWords: 20,
		NewOptions: func() any { return &corridorOptions{} },
		New:        func(o any) (envs.Env, error) { return examined{&corridor{options: o.(*corridorOptions)}}, nil },
	})
}

// However an episode ends, its environment judges what it has come to, once, and the last reply has the reward.
func TestFinish(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		set    func(*config.Rollout, *config.Env)
		score  float64
		stop   string
		turns  int
		tried  float64 // 1: the end was judged
	}{
		"turns":   {"Right", func(_ *config.Rollout, e *config.Env) { e.MaxTurns = 1 }, 9.9, episode.Terminated, 1, 1},
		"actions": {"Right", func(*config.Rollout, *config.Env) {}, 19.8, episode.Terminated, 2, 1},
		"length": {"Right", func(r *config.Rollout, _ *config.Env) { r.MaxLength = 530 }, 9.9, episode.Terminated, 1,
			1},
		"by itself": {"Right", func(_ *config.Rollout, e *config.Env) { e.MaxActions = 6 }, 0.9, episode.Terminated, 2,
			0},
	} {
		rollout, env := defaults(), source(1, 1, nil)
		env.Tag, env.MaxActionsPerTurn = "judged", 1
		c.set(&rollout, &env)
		seed := int64(1) // four cells: the goal is not reached in two steps
		if name == "by itself" {
			seed = 3 // three cells
		}
		sampler := &script{t: t, tokenizer: tokenizer(t), reply: func(uint64, int) string {
			return "</think><answer>" + c.answer + "</answer><|im_end|>"
		}}
		p := player(t, sampler, rollout)
		episodes, _, err := p.Play(t.Context(), Plan{Step: 1, Stream: Train, Sources: []config.Env{env}, EnvSeed: seed})
		if err != nil || len(episodes) != 1 {
			t.Fatalf("%s: %v", name, err)
		}
		e := episodes[0]
		last := e.Rewards[len(e.Rewards)-1]
		if diff := e.Score - c.score; diff > 1e-9 || diff < -1e-9 || e.Stop != c.stop || len(e.Turns) != c.turns ||
			!e.Success || e.Metrics["final_judged"] != c.tried || last.Token != e.Turns[c.turns-1].End-1 {
			t.Errorf("%s: score %g, stop %s, %d turns, success %v, rewards %v, metrics %v", name, e.Score, e.Stop,
				len(e.Turns), e.Success, e.Rewards, e.Metrics)
		}
	}
	env := source(1, 1, map[string]any{"fault": "unfinished"})
	env.Tag, env.MaxTurns = "judged", 1
	sampler := &script{t: t, tokenizer: tokenizer(t), again: true, reply: func(uint64, int) string {
		return "</think><answer>Right</answer><|im_end|>"
	}}
	p := player(t, sampler, defaults())
	episodes, stats, err := p.Play(t.Context(), Plan{Step: 1, Stream: Train, Sources: []config.Env{env}, EnvSeed: 1})
	if err != nil || len(episodes) != 0 || stats.LeftOut != 1 {
		t.Errorf("a judge that fails: %d episodes, %+v, %v", len(episodes), stats, err)
	}
}
