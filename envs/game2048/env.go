// Package game2048 is the sliding game 2048: tiles of powers of two move to a side, equal neighbours merge, and
// every move adds a tile until none is possible.
package game2048

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gyre/envs"
)

// options are the settings of the game.
type options struct {
	TwoProb float64 `option:"two_prob" range:"[0,1]" doc:"probability that a new tile is a 2, not a 4"`
	Log     bool    `option:"use_log_reward" doc:"reward 0.1·log2(points + 1) per move; false: the points"`
	Target  int     `option:"target" range:"[8,131072]" doc:"tile that makes the game a success"`
}

func init() {
	tag := envs.Native("game2048", options{TwoProb: 0.9, Log: true, Target: 2048}, newGame)
	envs.Register(tag("game_2048", "4x4 board of 2048", 700, 8192, nil))
}

// game is the environment.
type game struct {
	envs.Episode
	options *options
	board   board
	score   int
	tiles   *rand.Rand
}

func newGame(o *options) (*game, error) {
	if bits.OnesCount(uint(o.Target)) != 1 {
		return nil, fmt.Errorf("option target: expected a power of two, got %d", o.Target)
	}
	return &game{options: o}, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.tiles = envs.Rand("game2048", seed)
	g.board, g.score = board{}, 0
	g.spawn()
	g.spawn()
	text := "You play 2048 on a board of four rows and four columns; 0 is an empty cell. A move slides all tiles to " +
		"one side as far as they go; two equal tiles that meet merge into their sum and earn it. After each move a 2 " +
		"or a 4 appears on an empty cell. The game ends when no move is possible. A move that slides nothing is " +
		"wasted. Collect as many points as you can."
	return g.Begin(text, actionNames), nil
}

// spawn adds a random tile. Its draws depend on how many tiles came before, so members of a group who move alike
// fare alike.
func (g *game) spawn() {
	cell, tile := g.tiles.Float64(), byte(1)
	if g.tiles.Float64() >= g.options.TwoProb {
		tile = 2
	}
	g.board.spawn(int(cell*float64(g.board.empty())), tile)
}

func (g *game) Observe() envs.Observation {
	text := make([]byte, 0, 160)
	for i, tile := range g.board {
		if i%4 == 0 {
			text = fmt.Appendf(text, "Row %d: [", i/4+1)
		}
		text = strconv.AppendInt(text, 1<<tile&^1, 10) // 0 is an empty cell
		if i%4 < 3 {
			text = append(text, ", "...)
		} else {
			text = append(text, "]\n"...)
		}
	}
	var valid []string
	for a, name := range actionNames {
		after := g.board
		if _, moved := after.slide(a); moved {
			valid = append(valid, name)
		}
	}
	if valid == nil {
		valid = []string{"None"}
	}
	text = fmt.Appendf(text, "Valid Actions: %s\nCurrent Score: %d", strings.Join(valid, ", "), g.score)
	return envs.Observation{Text: string(text)}
}

// Step makes a move. One that moves nothing changes nothing, adds no tile and is not valid.
func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	a, err := g.Take(action)
	if a < 0 {
		return envs.Result{}, err
	}
	points, moved := g.board.slide(a)
	raw := float64(points)
	if moved {
		g.score += points
		g.spawn()
	} else {
		raw = -0.1
	}
	r := envs.Result{Reward: raw, Valid: moved, Effective: moved}
	if g.options.Log {
		r.Reward = 0.1 * math.Log2(max(0, raw)+1)
	}
	largest := 1 << slices.Max(g.board[:])
	r.Success = largest >= g.options.Target
	r.Done = g.board.stuck()
	r.Info = map[string]float64{"raw_reward": raw, "final_score": float64(g.score), "final_max_tile": float64(largest)}
	return g.End(r)
}
