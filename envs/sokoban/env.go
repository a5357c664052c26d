package sokoban

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/envs/grid"
)

const (
	rewardAction = -0.1 // every action
	rewardBox    = 1.0  // a box comes onto a target; minus this when one leaves
	rewardSolved = 10.0
)

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	options *options
	look    grid.Look
	levels  []*board // fixed levels; nil = generated ones
	board   *board
	placed  int // boxes on targets
	steps   int
	running bool
	plan    []int // of the solution found last, what is still to be done; empty when the player went another way
}

func newGame(o *options) (*game, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	glyphs, err := grid.ParseGlyphs(o.Glyphs, meanings)
	if err != nil {
		return nil, err
	}
	g := &game{options: o, look: grid.Look{Format: o.Observation, Glyphs: glyphs, Separator: o.Separator,
		View: o.View, Blank: '#', Outside: '#'}}
	switch {
	case o.Level != nil:
		level, err := parseLevel(o.Level)
		if err != nil {
			return nil, fmt.Errorf("option level: %w", err)
		}
		g.levels = []*board{level}
	case o.Levels != "":
		if g.levels, err = readLevels(o.Levels); err != nil {
			return nil, err
		}
	}
	for _, level := range g.levels {
		if err := grid.CheckSize(o.Observation, level.rows, level.cols); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	if n := int64(len(g.levels)); n > 0 {
		g.board = g.levels[(seed%n+n)%n].clone()
	} else {
		b, _, err := generate(seed, g.options.Size[0], g.options.Size[1], g.options.Boxes, g.options.SearchDepth)
		if err != nil {
			return envs.Start{}, err
		}
		g.board = b
	}
	_, g.placed = g.board.boxes()
	g.steps, g.running, g.plan = 0, true, nil
	return envs.Start{Instruction: g.instruction(), Actions: g.actions()}, nil
}

func (g *game) Observe() envs.Observation {
	return envs.Observation{Text: g.board.render(g.look)}
}

// Board implements envs.Pictured.
func (g *game) Board() string { return g.board.render(g.look.Board()) }

func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	a := slices.IndexFunc(g.options.Actions, func(name string) bool { return strings.EqualFold(name, action) })
	if a < 0 {
		return envs.Result{}, nil
	}
	if len(g.plan) > 0 && g.plan[0] == a {
		g.plan = g.plan[1:]
	} else {
		g.plan = nil
	}
	moved := g.board.move(directions[a])
	g.steps++
	all, placed := g.board.boxes()
	r := envs.Result{Reward: rewardAction, Valid: true, Effective: moved, Success: placed == all}
	switch {
	case placed > g.placed:
		r.Reward += rewardBox
	case placed < g.placed:
		r.Reward -= rewardBox
	}
	if r.Success {
		r.Reward += rewardSolved
	}
	g.placed = placed
	r.Done = r.Success || g.steps >= g.options.MaxSteps
	r.Info = map[string]float64{"boxes_on_target": float64(placed)}
	g.running = !r.Done
	return r, nil
}

func (g *game) actions() []string { return slices.Clone(g.options.Actions) }

func (g *game) instruction() string {
	return "You play Sokoban. Bring every box onto a target. You move one cell up, down, left or right; walking into " +
		"a box pushes it one cell further, but only if the cell behind it is free of walls and other boxes. Boxes " +
		"cannot be pulled and walls cannot be entered, so think before a box ends up in a corner.\n" +
		g.look.Explain(g.board.rows, g.board.cols, meanings, marks, "walls")
}

// Solve returns a shortest solution. Who follows it pays for one search: what is left of a shortest solution is the
// one that a search from there would find, since both are the first in the order of the directions.
func (g *game) Solve() ([]string, bool) {
	if len(g.plan) == 0 {
		way, ok := g.board.solve()
		if !ok {
			return nil, false
		}
		g.plan = way
	}
	names := make([]string, len(g.plan))
	for i, a := range g.plan {
		names[i] = g.options.Actions[a]
	}
	return names, true
}

func (g *game) Close() error {
	g.running = false
	return nil
}
