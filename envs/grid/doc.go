// Package grid holds what the board games share: directions, glyph sets and the text formats of an observation.
//
//	grid          one character per cell, one line per row
//	coord         the board's size, then one line per kind of object with the zero-based (row, column) of each
//	grid_coord    both, coordinates first
//	cells         the names of the cells, one character each, behind the mark of what lies on them
//	surroundings  the cells around player and boxes, and the ways between player, boxes and targets
package grid
