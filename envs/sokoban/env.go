// Package sokoban is the box-pushing game: walk onto a box to push it, bring every box onto a target.
//
// Levels are made backwards from the solved state (as gym-sokoban does), so each has a solution, or are read from text
// in the usual XSB characters, for instance the Boxoban level files. Rewards: -0.1 per action, +1 when a box comes onto
// a target, -1 when one leaves, +10 when all are there; the action that finishes a one-box level earns 10.9.
package sokoban

import (
	"context"
	"errors"
	"fmt"

	"gyre/envs"
	"gyre/envs/grid"
)

const (
	rewardAction = -0.1 // every action
	rewardBox    = 1.0  // a box comes onto a target; minus this when one leaves
	rewardSolved = 10.0
)

// options are the settings of a Sokoban environment.
type options struct {
	Size        [2]int   `option:"size,dim_room" range:"[4,100]" doc:"rows and columns of generated levels, outer wall included"`
	Boxes       int      `option:"boxes,num_boxes" range:"[1,)" doc:"boxes of generated levels"`
	SearchDepth int      `option:"search_depth" range:"[2,1000000]" doc:"moves that the generator may go back from the solved state"`
	MaxSteps    int      `option:"max_steps" range:"[1,)" doc:"actions after which the game ends unsolved"`
	Observation string   `option:"observation,observation_format" oneof:"grid,coord,grid_coord,surroundings" doc:"how a board is shown"`
	View        int      `option:"view" range:"[0,11]" doc:"cells on each side that surroundings shows"`
	Actions     []string `option:"actions,action_lookup" doc:"names of the moves up, down, left and right"`
	Separator   string   `option:"separator" doc:"text between the cells of a row, and of surroundings"`
	Glyphs      string   `option:"glyphs" doc:"wall, floor, target, box on target, box, player, player on target"`
	Level       []string `option:"level" doc:"play this level: rows of # wall, @ player, + player on target, $ box, * box on target, . target, space floor"`
	Levels      string   `option:"levels" doc:"play the levels of this file, chosen by the seed: Boxoban's text, or JSON Lines of {\"rows\": [\"####\", …]}"`
}

func init() {
	tag := envs.Native("sokoban", options{Size: [2]int{6, 6}, Boxes: 1, SearchDepth: 300, MaxSteps: 100,
		Observation: "grid", View: 1, Glyphs: "#_O√XPS", Actions: actionNames}, newGame)
	envs.Register(
		tag("sokoban", "6x6 board, one box, drawn as a grid", 10, 100, nil),
		tag("SimpleSokoban", "6x6 board, one box, drawn as a grid (RAGEN's name)", 10, 100, nil),
		tag("CoordSokoban", "6x6 board, one box, coordinates and grid", 10, 120,
			func(o *options) { o.Observation = "grid_coord" }),
		tag("LargerSokoban", "8x8 board, two boxes, drawn as a grid", 10, 100,
			func(o *options) { o.Size, o.Boxes, o.SearchDepth = [2]int{8, 8}, 2, 10 }),
		tag("SokobanDifferentGridVocab", "6x6 board, one box, drawn with other symbols", 10, 100,
			func(o *options) { o.SearchDepth, o.Glyphs = 30, "W.GCBA@" }),
	)
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options *options
	look    grid.Look
	levels  []*board // fixed levels; nil = generated ones
	board   *board
	placed  int   // boxes on targets
	plan    []int // of the solution found last, what is still to be done; empty when the player went another way
}

func newGame(o *options) (*game, error) {
	g := &game{options: o}
	var err error
	switch {
	case o.Level != nil && o.Levels != "":
		err = errors.New("options level and levels exclude each other: keep one")
	case o.Level == nil && o.Levels == "":
		err = grid.CheckSize(o.Observation, grid.Size{Rows: o.Size[0], Cols: o.Size[1]})
	}
	if err = errors.Join(grid.CheckActions(o.Actions, actionNames), err); err != nil {
		return nil, err
	}
	g.look = grid.Look{Format: o.Observation, Separator: o.Separator, View: o.View, Blank: '#', Outside: '#'}
	if g.look.Glyphs, err = grid.ParseGlyphs(o.Glyphs, meanings); err != nil {
		return nil, err
	}
	switch {
	case o.Level != nil:
		level, err := parseLevel(o.Level)
		if err != nil {
			return nil, fmt.Errorf("option level: %w", err)
		}
		g.levels = []*board{level}
	case o.Levels != "":
		if g.levels, err = readLevels(o.Levels); err != nil {
			return nil, fmt.Errorf("option levels: %w", err)
		}
	}
	for _, level := range g.levels {
		if err := grid.CheckSize(o.Observation, level.Size); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	if g.levels != nil {
		g.board = envs.At(g.levels, seed)
	} else {
		b, _, err := generate(seed, g.options.Size[0], g.options.Size[1], g.options.Boxes, g.options.SearchDepth)
		if err != nil {
			return envs.Start{}, err
		}
		g.board = b
	}
	_, g.placed = g.board.boxes()
	g.plan = nil
	return g.Begin("You play Sokoban. Bring every box onto a target. You move one cell up, down, left or right; "+
		"walking into a box pushes it one cell further, but only if the cell behind it is free of walls and other "+
		"boxes. Boxes cannot be pulled and walls cannot be entered, so think before a box ends up in a corner.\n"+
		g.look.Explain(g.board.Size, meanings, marks, "walls"), g.options.Actions), nil
}

func (g *game) Observe() envs.Observation { return envs.Observation{Text: g.board.render(g.look)} }

// Board implements envs.Pictured.
func (g *game) Board() string { return g.board.render(g.look.Board()) }

func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	a, err := g.Take(action)
	if a < 0 {
		return envs.Result{}, err
	}
	if len(g.plan) > 0 && g.plan[0] == a {
		g.plan = g.plan[1:]
	} else {
		g.plan = nil
	}
	var moved bool
	g.board, moved = g.board.move(directions[a])
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
	r.Done = r.Success || g.Steps >= g.options.MaxSteps
	r.Info = map[string]float64{"boxes_on_target": float64(placed)}
	return g.End(r)
}

// Solve returns a shortest solution. Who follows it pays for one search: what is left of a shortest solution is the
// one that a search from there would find, since both are the first in the order of the directions.
func (g *game) Solve() (_ []string, ok bool) {
	if len(g.plan) == 0 {
		if g.plan, ok = g.board.solve(); !ok {
			return nil, false
		}
	}
	return g.Names(g.plan), true
}
