// Package grid holds what the board games share: directions, glyph sets and the three text formats of an observation.
//
//	grid        one character per cell, one line per row
//	coord       the board's size, then one line per kind of object with the zero-based (row, column) of each
//	grid_coord  both, coordinates first
package grid
