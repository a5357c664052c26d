package rollout

import (
	"context"
	"fmt"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// Frame is a moment of an episode as people see it.
type Frame struct {
	Actions []string // that led here; none at the start
	Reward  float64  // of these actions
	Board   string
}

// Replay plays the replies of an episode again and draws the state at the start and after every turn. It needs an
// environment whose episodes follow from the seed. source is the table that the episode was played from.
func (p *Player) Replay(ctx context.Context, source config.Env, e *episode.Episode) ([]Frame, error) {
	kind, err := p.kind(source)
	if err != nil {
		return nil, err
	}
	r := &runner{player: p, kind: kind, slot: slot{seed: e.Seed}}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	defer r.leave()
	var frames []Frame
	show := func(actions []string, reward float64) error {
		if r.failed() {
			return fmt.Errorf("%s: %w", r, r.game.failure)
		}
		board, err := call(ctx, &r.game, func(_ context.Context, env envs.Env) (string, error) {
			return envs.Board(env), nil
		})
		frames = append(frames, Frame{Actions: actions, Reward: reward, Board: board})
		return err
	}
	if err := show(nil, 0); err != nil {
		return nil, err
	}
	for _, t := range e.Turns {
		out := r.game.play(ctx, r.read(ctx, p.Text(e.IDs[t.Reply:t.End])))
		if err := show(out.actions, out.reward); err != nil {
			return nil, err
		}
	}
	return frames, nil
}
