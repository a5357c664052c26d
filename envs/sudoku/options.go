package sudoku

import (
	"errors"
	"fmt"

	"gyre/envs"
)

// options are the settings of the game.
type options struct {
	Size       int     `option:"size,grid_size" doc:"rows and columns of generated puzzles: 4, 9 or 16"`
	Difficulty string  `option:"difficulty" oneof:"easy,medium,hard" doc:"share of empty cells: 40, 50 or 60 %"`
	Blanks     int     `option:"blanks" range:"[0,)" doc:"number of empty cells; 0: as difficulty says"`
	Unique     bool    `option:"unique" doc:"generated puzzles have a single solution"`
	Puzzles    string  `option:"puzzles" doc:"play the puzzles of this file, chosen by the seed"`
	MaxSteps   int     `option:"max_steps" range:"[1,)" doc:"actions after which the game ends unsolved"`
	Format     string  `option:"observation,render_format" oneof:"simple,detailed,with_feedback" doc:"how the grid is shown"`
	Conflicts  bool    `option:"show_conflicts" doc:"feedback names what a move clashes with"`
	Numbers    bool    `option:"show_valid_numbers" doc:"feedback names the numbers that a cell may hold"`
	Candidates bool    `option:"show_candidates" doc:"name what every empty cell may hold, however many they are"`
	Correct    float64 `option:"correct_reward" doc:"reward of a number that the solution has there"`
	Legal      float64 `option:"legal_reward" doc:"reward of another number that breaks no rule yet"`
	Invalid    float64 `option:"invalid_penalty" doc:"reward of a move that cannot be made"`
	Completion float64 `option:"completion_bonus" doc:"added to the reward of the move that solves the puzzle"`
}

// shares are the percentages of empty cells.
var shares = map[string]int{"easy": 40, "medium": 50, "hard": 60}

func (o *options) check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if o.Size != 4 && o.Size != 9 && o.Size != 16 {
		problem("option size: expected 4, 9 or 16, got %d", o.Size)
	}
	if o.Blanks > o.Size*o.Size {
		problem("option blanks: expected 0 to %d, got %d", o.Size*o.Size, o.Blanks)
	}
	return errors.Join(problems...)
}

// blanks is the number of cells to empty.
func (o *options) blanks() int {
	if o.Blanks > 0 {
		return o.Blanks
	}
	return o.Size * o.Size * shares[o.Difficulty] / 100
}

func init() {
	spec := func(tag, doc string, size int, difficulty string, actions int) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "sudoku", Doc: doc, MaxActions: actions, MaxReplyWords: 150,
			NewOptions: func() any {
				return &options{
					Size: size, Difficulty: difficulty, Unique: true, MaxSteps: 81, Format: "with_feedback",
					Conflicts: true, Numbers: true,
					Correct: 1, Legal: 0.5, Invalid: -0.1, Completion: 10,
				}
			},
			New: func(o any) (envs.Env, error) { return newGame(o.(*options)) },
		}
	}
	envs.Register(
		spec("SimpleSudoku", "9x9 grid, 32 empty cells, one number per action", 9, "easy", 20),
		spec("MediumSudoku", "9x9 grid, 40 empty cells, one number per action", 9, "medium", 30),
		spec("MiniSudoku", "4x4 grid, 6 empty cells, one number per action", 4, "easy", 10),
	)
}
