// Package rubikscube is the pocket cube, 2×2×2: turn its faces until each shows one colour.
package rubikscube

import (
	"context"
	"fmt"

	"gyre/envs"
)

// options are the settings of a cube.
type options struct {
	Scramble int `option:"scramble_depth" range:"[1,1000]" doc:"random turns that the cube is scrambled with"`
	MaxSteps int `option:"max_steps" range:"[1,)" doc:"actions after which the game ends unsolved"`
}

func init() {
	tag := envs.Native("rubikscube", options{Scramble: 1, MaxSteps: 20},
		func(o *options) (*game, error) { return &game{options: o}, nil })
	envs.Register(tag("rubikscube", "2x2 cube, scrambled by one turn", 20, 96, nil))
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options *options
	cube    cube
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	rng := envs.Rand("rubikscube", seed)
	g.cube = solvedCube()
	for g.cube.solved() { // turns that undo each other are no puzzle: go on turning
		for range g.options.Scramble {
			g.cube.turn(rng.IntN(len(actionNames)))
		}
	}
	return g.Begin(rules, actionNames), nil
}

func (g *game) Observe() envs.Observation {
	text := make([]byte, 0, 160)
	for f, name := range []string{"Up (U):", "Left (L):", "Front (F):", "Right (R):", "Back (B):", "Down (D):"} {
		text = append(text, name...)
		for i := 4 * f; i < 4*f+4; i += 2 {
			text = append(text, ' ', '[', g.cube[i], ',', ' ', g.cube[i+1], ']')
		}
		text = append(text, '\n')
	}
	return envs.Observation{Text: string(fmt.Appendf(text, "Step: %d/%d", g.Steps, g.options.MaxSteps))}
}

func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	a, err := g.Take(action)
	if a < 0 {
		return envs.Result{}, err
	}
	g.cube.turn(a)
	solved := g.cube.solved()
	return g.End(envs.Result{Reward: envs.Indicator(solved), Done: solved || g.Steps >= g.options.MaxSteps,
		Success: solved, Valid: true, Effective: true})
}

const rules = "You hold a 2x2x2 Rubik's cube. Turn its faces until every face shows a single colour; which colour is " +
	"where does not matter. A letter turns that face a quarter clockwise as seen from outside: U up, D down, L " +
	"left, R right, F front, B back. A letter with ' turns it counter-clockwise.\nEach face is shown as its " +
	"upper row and its lower row. L, F, R and B are seen upright from outside; U is seen from above with F at " +
	"its lower edge, D from below with F at its upper edge. Colours: W white, O orange, G green, R red, B blue, " +
	"Y yellow."

// Solve returns a shortest solution.
func (g *game) Solve() ([]string, bool) {
	way, ok := g.cube.solve()
	return g.Names(way), ok
}
