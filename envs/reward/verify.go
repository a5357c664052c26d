package reward

import (
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"gyre/envs/sokoban"
	"gyre/envs/sudoku"
	"gyre/internal/answer/algebra"
)

// Verifies reports whether answers to the problems of a source are tried out instead of compared.
func Verifies(source string) bool { return verifiers[source] != nil }

// verifiers judge answers to reasoning-gym's problems that have more solutions than the one in the file, by the name of
// the problem's generator.
var verifiers = map[string]func(pred string, r Reply) bool{
	"countdown":   verifyCountdown,
	"mini_sudoku": verifySudoku,
	"sudoku":      verifySudoku,
	"sokoban":     verifySokoban,
}

// metadata decodes the row's metadata into a struct.
func metadata(r Reply, into any) bool {
	text, err := json.Marshal(r.Columns["metadata"])
	return err == nil && json.Unmarshal(text, into) == nil
}

// verifyCountdown accepts an arithmetic expression that uses every number once and gives the target.
func verifyCountdown(pred string, r Reply) bool {
	var m struct {
		Numbers []int64
		Target  int64
	}
	if !metadata(r, &m) {
		return false
	}
	left, _, _ := strings.Cut(pred, "=")
	value, used, ok := algebra.Arithmetic(left)
	if !ok || value.Cmp(big.NewRat(m.Target, 1)) != 0 {
		return false
	}
	slices.Sort(used)
	slices.Sort(m.Numbers)
	return slices.Equal(used, m.Numbers)
}

// verifySudoku accepts a grid that keeps the puzzle's numbers and has each number once in every row, column and box.
func verifySudoku(pred string, r Reply) bool {
	var m struct{ Puzzle [][]int }
	var numbers []int
	for _, text := range strings.Fields(pred) {
		value, err := strconv.Atoi(text)
		if err != nil {
			return false
		}
		numbers = append(numbers, value)
	}
	return metadata(r, &m) && sudoku.Solves(m.Puzzle, numbers)
}

// xsb turns the letters of the puzzle's text into those of level files.
var xsb = strings.NewReplacer("*", "@", "%", "+", "@", "$", "X", ".", "$", "*", "+", "#", " ", "")

// verifySokoban plays the moves.
func verifySokoban(pred string, r Reply) bool {
	var m struct{ Gamestr string }
	return metadata(r, &m) && sokoban.Solves(strings.Split(strings.TrimSpace(xsb.Replace(m.Gamestr)), "\n"),
		strings.TrimSpace(pred))
}
