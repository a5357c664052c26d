package sokoban

import (
	"math/rand/v2"
	"strings"
	"testing"

	"gyre/envs"
)

// The surroundings say nothing but what the grid of the same state says: a window around each actor, and the
// differences of positions.
func TestSurroundingsAgreeWithTheGrid(t *testing.T) {
	const view = 2
	options := map[string]any{"boxes": 2, "size": []any{8, 7}}
	drawn := play(t, options)
	options["observation"], options["view"] = "surroundings", view
	shown := play(t, options)
	marks := map[rune]byte{'#': '#', '_': '_', 'O': '.', '√': '*', 'X': '$', 'P': '@', 'S': '+'}
	rng, states := rand.New(rand.NewPCG(1, 2)), 0
	for seed := range int64(60) {
		for _, g := range []*game{drawn, shown} {
			if _, err := g.Reset(t.Context(), seed, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 12 {
			var board []string
			for line := range strings.Lines(drawn.Observe().Text) {
				row := ""
				for _, glyph := range strings.TrimSpace(line) {
					row += string(marks[glyph])
				}
				board = append(board, row)
			}
			if got, want := shown.Observe().Text, surroundings(board, view); got != want {
				t.Fatalf("seed %d: %q, want %q for\n%s", seed, got, want, strings.Join(board, "\n"))
			}
			states++
			action := actionNames[rng.IntN(4)]
			for _, g := range []*game{drawn, shown} {
				if _, err := g.Step(t.Context(), action); err != nil && err != envs.ErrNotRunning {
					t.Fatal(err)
				}
			}
			if !drawn.Running() {
				break
			}
		}
	}
	if states < 600 {
		t.Errorf("only %d states were compared", states)
	}
}

// surroundings reads them off a board of marks, in the most simple way.
func surroundings(board []string, view int) string {
	find := func(marks string) (at [][2]int) {
		for r, row := range board {
			for c := range row {
				if strings.IndexByte(marks, row[c]) >= 0 {
					at = append(at, [2]int{r, c})
				}
			}
		}
		return at
	}
	way := func(from, to [2]int) string {
		return string([]byte{byte('O' + to[0] - from[0]), byte('O' + to[1] - from[1])})
	}
	player := find("@+")[0]
	var parts []string
	for _, at := range append([][2]int{player}, append(find("*"), find("$")...)...) {
		text := board[at[0]][at[1] : at[1]+1]
		if at != player {
			text += way(player, at)
		}
		for r := at[0] - view; r <= at[0]+view; r++ {
			for c := at[1] - view; c <= at[1]+view; c++ {
				switch {
				case r == at[0] && c == at[1]:
				case r < 0 || c < 0 || r >= len(board) || c >= len(board[0]):
					text += "#"
				default:
					text += board[r][c : c+1]
				}
			}
		}
		if at != player {
			for _, target := range find(".*+") {
				text += "." + way(at, target)
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}
