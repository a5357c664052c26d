package sokoban

import (
	"errors"

	"gyre/envs"
	"gyre/envs/grid"
)

// options are the settings of a Sokoban environment.
type options struct {
	Size        [2]int   `option:"size,dim_room" range:"[4,100]" doc:"rows and columns of generated levels, outer wall included"`
	Boxes       int      `option:"boxes,num_boxes" range:"[1,)" doc:"boxes of generated levels"`
	SearchDepth int      `option:"search_depth" range:"[2,1000000]" doc:"moves that the generator may go back from the solved state"`
	MaxSteps    int      `option:"max_steps" range:"[1,)" doc:"actions after which the game ends unsolved"`
	Observation string   `option:"observation,observation_format" oneof:"grid,coord,grid_coord,cells,surroundings" doc:"how a board is shown"`
	View        int      `option:"view" range:"[0,11]" doc:"cells on each side that surroundings shows"`
	Actions     []string `option:"actions,action_lookup" doc:"names of the moves up, down, left and right"`
	Separator   string   `option:"separator" doc:"text between the cells of a row, and of surroundings"`
	Glyphs      string   `option:"glyphs" doc:"wall, floor, target, box on target, box, player, player on target"`
	Level       []string `option:"level" doc:"play this one level: its rows, in XSB characters"`
	Levels      string   `option:"levels" doc:"play the levels of this file (Boxoban text or JSON Lines)"`
}

func defaults(set func(*options)) func() any {
	return func() any {
		o := &options{
			Size: [2]int{6, 6}, Boxes: 1, SearchDepth: 300, MaxSteps: 100, Observation: "grid", View: 1,
			Glyphs: "#_O√XPS", Actions: actionNames,
		}
		set(o)
		return o
	}
}

func (o *options) check() error {
	problems := []error{grid.CheckActions(o.Actions, actionNames)}
	if o.Level != nil && o.Levels != "" {
		problems = append(problems, errors.New("options level and levels exclude each other: keep one"))
	}
	if o.Level == nil && o.Levels == "" {
		problems = append(problems, grid.CheckSize(o.Observation, o.Size[0], o.Size[1]))
	}
	return errors.Join(problems...)
}

func init() {
	same := func(*options) {}
	spec := func(tag, doc string, words int, set func(*options)) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "sokoban", Doc: doc, MaxActions: 10, MaxReplyWords: words,
			NewOptions: defaults(set), New: func(o any) (envs.Env, error) { return newGame(o.(*options)) },
		}
	}
	envs.Register(
		spec("sokoban", "6x6 board, one box, drawn as a grid", 100, same),
		spec("SimpleSokoban", "6x6 board, one box, drawn as a grid (RAGEN's name)", 100, same),
		spec("CoordSokoban", "6x6 board, one box, coordinates and grid", 120,
			func(o *options) { o.Observation = "grid_coord" }),
		spec("LargerSokoban", "8x8 board, two boxes, drawn as a grid", 100, func(o *options) {
			o.Size, o.Boxes, o.SearchDepth = [2]int{8, 8}, 2, 10
		}),
		spec("SokobanDifferentGridVocab", "6x6 board, one box, drawn with other symbols", 100, func(o *options) {
			o.SearchDepth, o.Glyphs = 30, "W.GCBA@"
		}),
	)
}
