package work

import (
	"context"
	"fmt"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/rollout"

	_ "gyre/envs/builtin" // registers sokoban
)

// observations plays Sokoban with the environment's own solver, one move a turn, and gives what the policy is shown: the tokens that
// come before each turn's reply, [episode][turn]. They end the turn before, so histories of replies of any length stay well formed.
func (m *Material) observations(episodes, turns, repeat int) ([][][]int32, error) {
	document := fmt.Sprintf("[model]\npath = \"none\"\n[[envs]]\ntag = \"sokoban\"\nmax_actions_per_turn = 1\nmax_turns = %d\n", turns)
	c, err := config.Parse("benchmark", []byte(document), nil)
	if err != nil {
		return nil, fmt.Errorf("the Sokoban configuration: %w", err)
	}
	player, err := rollout.NewPlayer(m.Tokenizer, nil, c.Rollout, nil, 1)
	if err != nil {
		return nil, fmt.Errorf("the Sokoban player: %w", err)
	}
	// Only levels that take long enough give all turns.
	shown, err := player.Demonstrations(context.Background(), rollout.DemonstrationPlan{
		Envs: c.Envs, Seed: int64(500_000 + 1000*repeat), Episodes: 6 * episodes,
	})
	if err != nil {
		return nil, fmt.Errorf("playing Sokoban: %w", err)
	}
	var out [][][]int32
	for _, e := range shown {
		if len(e.Turns) != turns || len(out) == episodes {
			continue
		}
		var episode [][]int32
		for k, turn := range e.Turns {
			from := turn.Observation
			if k > 0 {
				from = e.Turns[k-1].End - 1 // the expert's end of turn, which a reply of fixed length lacks
			}
			episode = append(episode, e.IDs[from:turn.Reply])
		}
		out = append(out, episode)
	}
	if len(out) < episodes {
		return nil, fmt.Errorf("only %d of %d Sokoban levels lasted %d turns, expected %d", len(out), len(shown), turns, episodes)
	}
	return out, nil
}
