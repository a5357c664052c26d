package frozenlake

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/envs/grid"
)

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	options *options
	look    grid.Look
	fixed   *lake // option map; nil = generated from the seed
	lake    *lake
	player  grid.Pos
	ice     *rand.Rand
	running bool
}

// gymnasium are its fixed maps.
var gymnasium = map[string][]string{
	"4x4": {"SFFF", "FHFH", "FFFH", "HFFG"},
	"8x8": {"SFFFFFFF", "FFFFFFFF", "FFFHFFFF", "FFFFFHFF", "FFFHFFFF", "FHHFFFHF", "FHFFHFHF", "FFFHFFFG"},
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
		View: o.View, Blank: '_', Outside: '='}}
	if rows := o.Map; rows != nil {
		if len(rows) == 1 && gymnasium[rows[0]] != nil {
			rows = gymnasium[rows[0]]
		}
		if g.fixed, err = parse(rows); err != nil {
			return nil, err
		}
		if err := grid.CheckSize(o.Observation, g.fixed.rows, g.fixed.cols); err != nil {
			return nil, err
		}
	}
	return g, nil
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
	g.running = true
	return envs.Start{Instruction: g.instruction(), Actions: g.actions()}, nil
}

func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	intended := slices.IndexFunc(g.options.Actions, func(name string) bool { return strings.EqualFold(name, action) })
	if intended < 0 {
		return envs.Result{}, nil
	}
	// always one draw per move, so that the k-th moves of a group meet the same ice
	return g.move(intended, g.ice.Float64()), nil
}

// move carries out an intended direction on ice of the given luck, a uniform number.
func (g *game) move(intended int, u float64) envs.Result {
	taken := g.slide(intended, u)
	before := g.player
	g.player = g.lake.step(g.player, directions[taken])
	fallen := g.lake.hole[g.lake.index(g.player)]
	r := envs.Result{Valid: true, Effective: g.player != before, Success: g.player == g.lake.goal}
	r.Done = r.Success || fallen
	r.Info = map[string]float64{"slipped": number(taken != intended), "in_hole": number(fallen)}
	if r.Success {
		r.Reward = 1
	}
	g.running = !r.Done
	return r
}

// slide returns the direction that the ice makes of the intended one. Neighbours in directions are perpendicular.
func (g *game) slide(intended int, u float64) int {
	if !g.options.Slippery || u < g.options.SuccessRate {
		return intended
	}
	if u < (1+g.options.SuccessRate)/2 {
		return (intended + 3) % 4
	}
	return (intended + 1) % 4
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (g *game) actions() []string { return slices.Clone(g.options.Actions) }

func (g *game) instruction() string {
	text := "You walk across a frozen lake, one cell left, down, right or up at a time. Reach the goal; whoever " +
		"steps into a hole has lost. A move over the edge of the board leaves you where you are."
	if g.options.Slippery && g.options.SuccessRate < 1 {
		text += " The ice is slippery: a move may carry you to a neighbouring cell at a right angle to the direction " +
			"you chose."
	}
	return text + "\n" + g.look.Explain(g.lake.rows, g.lake.cols, meanings, marks, "ice")
}

// Solve returns the shortest way to the goal if the ice never slips.
func (g *game) Solve() ([]string, bool) {
	way, ok := g.lake.path(g.player)
	names := make([]string, len(way))
	for i, a := range way {
		names[i] = g.options.Actions[a]
	}
	return names, ok
}

func (g *game) Close() error {
	g.running = false
	return nil
}
