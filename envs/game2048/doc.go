// Package game2048 is the sliding game 2048: tiles of powers of two move to a side, equal neighbours merge, and
// every move adds a tile until none is possible.
package game2048
