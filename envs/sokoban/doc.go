// Package sokoban is the box-pushing game: walk onto a box to push it, bring every box onto a target.
//
// Levels are made backwards from the solved state (as gym-sokoban does), so each has a solution, or are read from text
// in the usual XSB characters, for instance the Boxoban level files. Rewards: -0.1 per action, +1 when a box comes onto
// a target, -1 when one leaves, +10 when all are there; the action that finishes a one-box level earns 10.9.
package sokoban
