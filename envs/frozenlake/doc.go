// Package frozenlake is the walk across a frozen lake: reach the goal without falling into a hole, on ice that may
// carry the player to the side. It follows Gymnasium's FrozenLake with the start and the goal anywhere on the board.
// Reward 1 on the goal, 0 otherwise; the episode ends on the goal and in a hole.
//
// The ice of an episode is drawn from its seed: the k-th move of every member of a group meets the same slip, so
// that returns within a group differ only by what the members did.
package frozenlake
