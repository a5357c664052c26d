// Package rubikscube is the pocket cube, 2×2×2: turn its faces until each shows one colour.
//
//	cube.go   stickers and turns
//	solve.go  shortest solutions
//	env.go    the environment and its tag
package rubikscube
