package frozenlake

import (
	"errors"
	"fmt"

	"gyre/envs"
	"gyre/envs/grid"
)

// options are the settings of a lake.
type options struct {
	Size        int      `option:"size" doc:"rows and columns of generated maps"`
	Frozen      float64  `option:"p" doc:"probability that a cell of a generated map is frozen, not a hole"`
	Slippery    bool     `option:"slippery,is_slippery" doc:"the ice may carry the player to the side"`
	SuccessRate float64  `option:"success_rate" doc:"probability of moving as intended on slippery ice; the rest is split between the two sides (1/3 is Gymnasium's)"`
	Observation string   `option:"observation,observation_format" doc:"grid, coord, grid_coord, cells (each cell by a name of one character) or surroundings (what lies around the player, and the way to the goal)"`
	View        int      `option:"view" doc:"cells on each side of the player that observation surroundings shows"`
	Actions     []string `option:"actions,action_lookup" doc:"names of the moves left, down, right and up"`
	Separator   string   `option:"separator" doc:"text between the cells of a row, and of surroundings"`
	Glyphs      string   `option:"glyphs" doc:"player, ice, hole, goal, player in a hole, player on the goal"`
	Map         []string `option:"map" doc:"play this map: rows of S start, F frozen, H hole, G goal; or 4x4 or 8x8, Gymnasium's own"`
}

func (o *options) check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Size < 2 || o.Size > 100 {
		problem("option size: expected 2 to 100, got %d", o.Size)
	}
	if !(o.Frozen >= 0 && o.Frozen <= 1) {
		problem("option p: expected a probability from 0 to 1, got %g", o.Frozen)
	}
	if !(o.SuccessRate >= 0 && o.SuccessRate <= 1) {
		problem("option success_rate: expected a probability from 0 to 1, got %g", o.SuccessRate)
	}
	if o.Map == nil {
		problems = append(problems, grid.CheckSize(o.Observation, o.Size, o.Size))
	}
	return errors.Join(append(problems, grid.CheckFormat(o.Observation), grid.CheckView(o.View),
		grid.CheckActions(o.Actions, actionNames))...)
}

func init() {
	spec := func(tag, doc, observation string, words int) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "frozenlake", Doc: doc, MaxActions: 10, MaxReplyWords: words,
			NewOptions: func() any {
				return &options{Size: 4, Frozen: 0.9, Slippery: true, SuccessRate: 0.8, Observation: observation,
					View:   1,
					Glyphs: "P_OGX√", Actions: actionNames}
			},
			New: func(o any) (envs.Env, error) { return newGame(o.(*options)) },
		}
	}
	envs.Register(
		spec("FrozenLake", "4x4 lake, slippery, drawn as a grid", "grid", 100),
		spec("CoordFrozenLake", "4x4 lake, slippery, coordinates and grid", "grid_coord", 120),
	)
}
