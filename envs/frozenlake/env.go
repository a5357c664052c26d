// Package frozenlake is the walk across a frozen lake: reach the goal without falling into a hole, on ice that may
// carry the player to the side. It follows Gymnasium's FrozenLake with the start and the goal anywhere on the board.
// Reward 1 on the goal, 0 otherwise; the episode ends on the goal and in a hole.
//
// The ice of an episode is drawn from its seed: the k-th move of every member of a group meets the same slip, so
// that returns within a group differ only by what the members did.
package frozenlake

import (
	"context"
	"errors"
	"math/rand/v2"

	"gyre/envs"
	"gyre/envs/grid"
)

// options are the settings of a lake.
type options struct {
	Size        int      `option:"size" range:"[2,100]" doc:"rows and columns of generated maps"`
	Frozen      float64  `option:"p" range:"[0,1]" doc:"probability that a cell of a generated map is frozen, not a hole"`
	Slippery    bool     `option:"slippery,is_slippery" doc:"the ice may carry the player to the side"`
	SuccessRate float64  `option:"success_rate" range:"[0,1]" doc:"probability of moving as intended on slippery ice; Gymnasium: 1/3"`
	Observation string   `option:"observation,observation_format" oneof:"grid,coord,grid_coord,surroundings" doc:"how a board is shown"`
	View        int      `option:"view" range:"[0,11]" doc:"cells on each side of the player that surroundings shows"`
	Actions     []string `option:"actions,action_lookup" doc:"names of the moves left, down, right and up"`
	Separator   string   `option:"separator" doc:"text between the cells of a row, and of surroundings"`
	Glyphs      string   `option:"glyphs" doc:"player, ice, hole, goal, player in a hole, player on the goal"`
	Map         []string `option:"map" doc:"play this map: rows of S, F, H and G as in Gymnasium; or its maps, 4x4 or 8x8"`
}

func init() {
	tag := envs.Native("frozenlake", options{Size: 4, Frozen: 0.9, Slippery: true, SuccessRate: 0.8,
		Observation: "grid", View: 1, Glyphs: "P_OGX√", Actions: actionNames}, newGame)
	envs.Register(
		tag("FrozenLake", "4x4 lake, slippery, drawn as a grid", 10, 100, nil),
		tag("CoordFrozenLake", "4x4 lake, slippery, coordinates and grid", 10, 120,
			func(o *options) { o.Observation = "grid_coord" }),
	)
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options *options
	look    grid.Look
	fixed   *lake // option map; nil = generated from the seed
	lake    *lake
	player  grid.Pos
	ice     *rand.Rand
}

// gymnasium are its fixed maps.
var gymnasium = map[string][]string{
	"4x4": {"SFFF", "FHFH", "FFFH", "HFFG"},
	"8x8": {"SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"},
}

func newGame(o *options) (*game, error) {
	g := &game{options: o}
	var err error
	if o.Map == nil {
		err = grid.CheckSize(o.Observation, grid.Size{Rows: o.Size, Cols: o.Size})
	}
	if err = errors.Join(err, grid.CheckActions(o.Actions, actionNames)); err != nil {
		return nil, err
	}
	g.look = grid.Look{Format: o.Observation, Separator: o.Separator, View: o.View, Blank: '_', Outside: '='}
	if g.look.Glyphs, err = grid.ParseGlyphs(o.Glyphs, meanings); err != nil || o.Map == nil {
		return g, err
	}
	rows := o.Map
	if len(rows) == 1 && gymnasium[rows[0]] != nil {
		rows = gymnasium[rows[0]]
	}
	if g.fixed, err = parse(rows); err != nil {
		return nil, err
	}
	return g, grid.CheckSize(o.Observation, g.fixed.Size)
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.lake = g.fixed
	if g.fixed == nil {
		l, err := generate(envs.Rand("frozenlake/map", seed), g.options.Size, g.options.Frozen)
		if err != nil {
			return envs.Start{}, err
		}
		g.lake = l
	}
	g.player = g.lake.start
	g.ice = envs.Rand("frozenlake/ice", seed)
	text := "You walk across a frozen lake, one cell left, down, right or up at a time. Reach the goal; whoever " +
		"steps into a hole has lost. A move over the edge of the board leaves you where you are."
	if g.options.Slippery && g.options.SuccessRate < 1 {
		text += " The ice is slippery: a move may carry you to a neighbouring cell at a right angle to the direction " +
			"you chose."
	}
	text += "\n" + g.look.Explain(g.lake.Size, meanings, marks, "ice")
	return g.Begin(text, g.options.Actions), nil
}

func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	intended, err := g.Take(action)
	if intended < 0 {
		return envs.Result{}, err
	}
	// always one draw per move, so that the k-th moves of a group meet the same ice
	return g.End(g.move(intended, g.ice.Float64()))
}

// move carries out an intended direction on ice of the given luck, a uniform number.
func (g *game) move(intended int, u float64) envs.Result {
	taken := g.slide(intended, u)
	before := g.player
	g.player = g.lake.step(g.player, directions[taken])
	fallen := g.lake.hole[g.lake.Index(g.player)]
	r := envs.Result{Valid: true, Effective: g.player != before, Success: g.player == g.lake.goal}
	r.Done = r.Success || fallen
	r.Info = map[string]float64{"slipped": envs.Indicator(taken != intended), "in_hole": envs.Indicator(fallen)}
	r.Reward = envs.Indicator(r.Success)
	return r
}

// slide returns the direction that the ice makes of the intended one. Neighbours in directions are perpendicular.
func (g *game) slide(intended int, u float64) int {
	switch {
	case !g.options.Slippery || u < g.options.SuccessRate:
		return intended
	case u < (1+g.options.SuccessRate)/2:
		return (intended + 3) % 4
	}
	return (intended + 1) % 4
}

// Solve returns the shortest way to the goal if the ice never slips.
func (g *game) Solve() ([]string, bool) {
	way, ok := g.lake.path(g.player)
	return g.Names(way), ok
}
