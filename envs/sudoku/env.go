// Package sudoku fills 4×4, 9×9 and 16×16 grids with numbers so that no row, column or box holds one twice.
package sudoku

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/envs"
)

// options are the settings of the game.
type options struct {
	Size       int     `option:"size,grid_size" doc:"rows and columns of generated puzzles: 4, 9 or 16"`
	Difficulty string  `option:"difficulty" oneof:"easy,medium,hard" doc:"share of empty cells: 40, 50 or 60 %"`
	Blanks     int     `option:"blanks" range:"[0,)" doc:"number of empty cells; 0: as difficulty says"`
	Unique     bool    `option:"unique" doc:"generated puzzles have a single solution"`
	Puzzles    string  `option:"puzzles" doc:"play the puzzles of this file, chosen by the seed: rows of {\"puzzle\": [[0, 3, …], …]}, or reasoning-gym's mini_sudoku"`
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

// blanks is the number of cells to empty.
func (o *options) blanks() int {
	if o.Blanks > 0 {
		return o.Blanks
	}
	return o.Size * o.Size * shares[o.Difficulty] / 100
}

func init() {
	tag := envs.Native("sudoku", options{Size: 9, Difficulty: "easy", Unique: true, MaxSteps: 81,
		Format: "with_feedback", Conflicts: true, Numbers: true, Correct: 1, Legal: 0.5, Invalid: -0.1,
		Completion: 10}, newGame)
	envs.Register(
		tag("SimpleSudoku", "9x9 grid, 32 empty cells, one number per action", 20, 150, nil),
		tag("MediumSudoku", "9x9 grid, 40 empty cells, one number per action", 30, 150,
			func(o *options) { o.Difficulty = "medium" }),
		tag("MiniSudoku", "4x4 grid, 6 empty cells, one number per action", 10, 150, func(o *options) { o.Size = 4 }),
	)
}

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	envs.Episode
	options  *options
	pairs    []pair // of a file; nil = generated puzzles
	grid     *grid
	solution *grid
	fixed    []bool // cells that the puzzle gives
	initial  int
	earned   []float64 // what each cell has paid
	feedback string    // on the latest move
}

func newGame(o *options) (*game, error) {
	var problems []error
	if o.Size != 4 && o.Size != 9 && o.Size != 16 {
		problems = append(problems, fmt.Errorf("option size: expected 4, 9 or 16, got %d", o.Size))
	}
	if o.Blanks > o.Size*o.Size {
		problems = append(problems, fmt.Errorf("option blanks: expected 0 to %d, got %d", o.Size*o.Size, o.Blanks))
	}
	g := &game{options: o}
	if problems == nil && o.Puzzles != "" {
		var err error
		g.pairs, err = readPuzzles(o.Puzzles)
		return g, err
	}
	return g, errors.Join(problems...)
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	var p pair
	var err error
	if g.pairs != nil {
		p = envs.At(g.pairs, seed)
		p.puzzle = p.puzzle.clone()
	} else {
		p, err = generate(envs.Rand("sudoku", seed), g.options.Size, g.options.blanks(), g.options.Unique)
	}
	if err != nil {
		return envs.Start{}, err
	}
	g.grid, g.solution = p.puzzle, p.solution
	g.fixed, g.earned = make([]bool, len(g.grid.cells)), make([]float64, len(g.grid.cells))
	for i, v := range g.grid.cells {
		g.fixed[i] = v != 0
	}
	g.initial = len(g.fixed) - g.grid.empty()
	g.feedback = ""
	return g.Begin(g.instruction(), nil), nil
}

// Step writes one number. Whatever the move, it counts as a step.
func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if _, err := g.Take(action); err != nil {
		return envs.Result{}, err
	}
	r := g.place(action)
	r.Success = g.grid.empty() == 0 // clashing numbers are never written
	if r.Success {
		r.Reward += g.options.Completion
		g.feedback = "Solved."
	}
	r.Done = r.Success || g.Steps >= g.options.MaxSteps
	r.Info = map[string]float64{"final_cells_left": float64(g.grid.empty())}
	return g.End(r)
}

func (g *game) place(action string) envs.Result {
	refuse := envs.Result{Reward: g.options.Invalid}
	m, ok := parseMove(action)
	if !ok {
		g.feedback = "That is no move: write, for instance, \"place 5 at row 2 col 3\"."
		return refuse
	}
	n := g.grid.n
	if m.row < 1 || m.row > n || m.col < 1 || m.col > n || m.value < 1 || m.value > n {
		g.feedback = fmt.Sprintf("Rows, columns and numbers go from 1 to %d.", n)
		return refuse
	}
	refuse.Valid = true
	i, v := (m.row-1)*n+m.col-1, int8(m.value)
	if g.fixed[i] {
		g.feedback = fmt.Sprintf("Row %d, column %d is an initial cell and stays as it is.", m.row, m.col)
		return refuse
	}
	if g.grid.cells[i] == v {
		g.feedback = fmt.Sprintf("Row %d, column %d holds %d already.", m.row, m.col, v)
		return refuse
	}
	if open := g.grid.open(i); open>>v&1 == 0 {
		g.feedback = fmt.Sprintf("%d cannot stand at row %d, column %d.", v, m.row, m.col)
		if g.options.Conflicts {
			g.feedback += " It clashes with its " + strings.Join(g.grid.clashes(i, v), " and its ") + "."
		}
		if g.options.Numbers {
			g.feedback += " Valid numbers there: " + list(open) + "."
		}
		return refuse
	}
	g.grid.set(i, v)
	g.feedback = fmt.Sprintf("Placed %d at row %d, column %d.", v, m.row, m.col)
	worth := g.options.Legal
	if g.solution.cells[i] == v {
		worth = g.options.Correct
	}
	// A cell pays for its best number once: who writes right and wrong numbers in turn earns nothing more.
	r := envs.Result{Reward: max(0, worth-g.earned[i]), Valid: true, Effective: true}
	g.earned[i] += r.Reward
	return r
}

func (g *game) instruction() string {
	n, box := g.grid.n, g.grid.box
	text := fmt.Sprintf("You solve a Sudoku. Fill the empty cells with numbers from 1 to %d so that every row, every "+
		"column and every %dx%d box holds each of them once. An action writes one number, such as \"place 3 at row 2 "+
		"col 1\" or, shorter, \"2,1,3\": row, column, number, all counted from 1. A number you wrote may be "+
		"replaced, but never by one that its row, column or box holds already.", n, box, box)
	if g.options.Format == "simple" {
		return text + "\nA dot is an empty cell."
	}
	return text + "\n[3] is an initial cell, which cannot be changed, 3 without brackets a number that you wrote, a " +
		"dot an empty cell."
}

// Solve writes the solution's numbers, wrong ones replaced as soon as their place allows it. Numbers in each other's
// place cannot be swapped.
func (g *game) Solve() ([]string, bool) {
	work := g.grid.clone()
	var actions []string
	for changed := true; changed; {
		changed = false
		for i, v := range g.solution.cells {
			if work.cells[i] != v && work.open(i)>>v&1 == 1 {
				work.set(i, v)
				actions = append(actions, fmt.Sprintf("place %d at row %d col %d", v, i/work.n+1, i%work.n+1))
				changed = true
			}
		}
	}
	if !slices.Equal(work.cells, g.solution.cells) {
		return nil, false
	}
	return actions, true
}

// move is a number and where to write it, counted from 1 as the player counts.
type move struct{ row, col, value int }

// forms are the ways to write a move, and which of their groups are row, column and number. The first that is found
// counts.
var forms = []struct {
	pattern         *regexp.Regexp
	row, col, value int
}{
	{regexp.MustCompile(`place\s+(\d+)\s+at\s+row\s+(\d+)\s+col(?:umn)?\s+(\d+)`), 2, 3, 1},
	{regexp.MustCompile(`(?:place\s+)?(\d+)\s+at\s+\(\s*(\d+)\s*,\s*(\d+)\s*\)`), 2, 3, 1},
	{regexp.MustCompile(`(?:place\s+)?(\d+)\s+at\s+(\d+)\s*,\s*(\d+)`), 2, 3, 1},
	{regexp.MustCompile(`\(\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\)`), 1, 2, 3},
	{regexp.MustCompile(`(\d+)\s*,\s*(\d+)\s*,\s*(\d+)`), 1, 2, 3},
}

func parseMove(text string) (move, bool) {
	text = strings.ToLower(text)
	for _, f := range forms {
		match := f.pattern.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		// Digits beyond an int are out of every grid's range too.
		row, _ := strconv.Atoi(match[f.row])
		col, _ := strconv.Atoi(match[f.col])
		value, _ := strconv.Atoi(match[f.value])
		return move{row, col, value}, true
	}
	return move{}, false
}
