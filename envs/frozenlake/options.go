package frozenlake

import (
	"errors"

	"gyre/envs"
	"gyre/envs/grid"
)

// options are the settings of a lake.
type options struct {
	Size        int      `option:"size" range:"[2,100]" doc:"rows and columns of generated maps"`
	Frozen      float64  `option:"p" range:"[0,1]" doc:"probability that a cell of a generated map is frozen, not a hole"`
	Slippery    bool     `option:"slippery,is_slippery" doc:"the ice may carry the player to the side"`
	SuccessRate float64  `option:"success_rate" range:"[0,1]" doc:"probability of moving as intended on slippery ice; Gymnasium: 1/3"`
	Observation string   `option:"observation,observation_format" oneof:"grid,coord,grid_coord,cells,surroundings" doc:"how a board is shown"`
	View        int      `option:"view" range:"[0,11]" doc:"cells on each side of the player that surroundings shows"`
	Actions     []string `option:"actions,action_lookup" doc:"names of the moves left, down, right and up"`
	Separator   string   `option:"separator" doc:"text between the cells of a row, and of surroundings"`
	Glyphs      string   `option:"glyphs" doc:"player, ice, hole, goal, player in a hole, player on the goal"`
	Map         []string `option:"map" doc:"play this map: rows of S, F, H and G; or 4x4 or 8x8, Gymnasium's"`
}

func (o *options) check() error {
	err := grid.CheckActions(o.Actions, actionNames)
	if o.Map == nil {
		err = errors.Join(grid.CheckSize(o.Observation, o.Size, o.Size), err)
	}
	return err
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
