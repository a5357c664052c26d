package sudoku

import (
	"context"
	"fmt"
	"strings"

	"gyre/envs"
)

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	options  *options
	pairs    []pair // of a file; nil = generated puzzles
	grid     *grid
	solution *grid
	fixed    []bool // cells that the puzzle gives
	initial  int
	earned   []float64 // what each cell has paid
	steps    int
	feedback string // on the latest move
	running  bool
}

func newGame(o *options) (*game, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &game{options: o}
	if o.Puzzles != "" {
		var err error
		if g.pairs, err = readPuzzles(o.Puzzles); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	if n := int64(len(g.pairs)); n > 0 {
		p := g.pairs[(seed%n+n)%n]
		g.grid, g.solution = newGrid(p.puzzle.n), p.solution
		g.grid.copyFrom(p.puzzle)
	} else {
		puzzle, solution, err := generate(envs.Rand("sudoku", seed), g.options.Size, g.options.blanks(),
			g.options.Unique)
		if err != nil {
			return envs.Start{}, err
		}
		g.grid, g.solution = puzzle, solution
	}
	g.fixed, g.earned = make([]bool, len(g.grid.cells)), make([]float64, len(g.grid.cells))
	for i, v := range g.grid.cells {
		g.fixed[i] = v != 0
	}
	g.initial = len(g.fixed) - g.grid.empty()
	g.steps, g.feedback, g.running = 0, "", true
	return envs.Start{Instruction: g.instruction()}, nil
}

// Step writes one number. Whatever the move, it counts as a step.
func (g *game) Step(_ context.Context, action string) (envs.Result, error) {
	if !g.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	g.steps++
	r := g.place(action)
	r.Success = g.grid.empty() == 0 // clashing numbers are never written
	if r.Success {
		r.Reward += g.options.Completion
		g.feedback = "Solved."
	}
	r.Done = r.Success || g.steps >= g.options.MaxSteps
	r.Info = map[string]float64{"final_cells_left": float64(g.grid.empty())}
	g.running = !r.Done
	return r, nil
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
	old := g.grid.cells[i]
	if old != 0 {
		g.grid.erase(i)
	}
	if open := g.grid.open(i); open>>v&1 == 0 {
		g.feedback = fmt.Sprintf("%d cannot stand at row %d, column %d.", v, m.row, m.col)
		if g.options.Conflicts {
			g.feedback += " It clashes with its " + strings.Join(g.grid.clashes(i, v), " and its ") + "."
		}
		if g.options.Numbers {
			g.feedback += " Valid numbers there: " + list(open) + "."
		}
		if old != 0 {
			g.grid.set(i, old)
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

// Solve writes the solution's numbers, wrong ones replaced as soon as their place allows it.
func (g *game) Solve() ([]string, bool) {
	work := newGrid(g.grid.n)
	work.copyFrom(g.grid)
	var actions []string
	for changed := true; changed; {
		changed = false
		for i, v := range g.solution.cells {
			if work.cells[i] == v {
				continue
			}
			old := work.cells[i]
			if old != 0 {
				work.erase(i)
			}
			if work.open(i)>>v&1 == 0 {
				if old != 0 {
					work.set(i, old)
				}
				continue
			}
			work.set(i, v)
			actions = append(actions, move{i/work.n + 1, i%work.n + 1, int(v)}.String())
			changed = true
		}
	}
	for i, v := range g.solution.cells {
		if work.cells[i] != v { // numbers in each other's place cannot be swapped
			return nil, false
		}
	}
	return actions, true
}

func (g *game) Close() error {
	g.running = false
	return nil
}
