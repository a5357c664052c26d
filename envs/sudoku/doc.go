// Package sudoku fills 4×4, 9×9 and 16×16 grids with numbers so that no row, column or box holds one twice.
//
//	grid.go    the grid and what it forbids
//	search.go  filling, uniqueness, the making of puzzles
//	file.go    puzzles from a file
//	parse.go   how a move is written
//	render.go  observations
//	options.go options and tags
//	env.go     the environment, its rewards and its expert
package sudoku
