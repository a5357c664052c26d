// Package builtin registers the environments that ship with Gyre; import it for effect. A new environment is one
// folder under envs and one line here.
package builtin

import (
	_ "gyre/envs/bandit"
	_ "gyre/envs/countdown"
	_ "gyre/envs/dataset"
	_ "gyre/envs/deepcoder"
	_ "gyre/envs/frozenlake"
	_ "gyre/envs/game2048"
	_ "gyre/envs/gateway"
	_ "gyre/envs/remote"
	_ "gyre/envs/rubikscube"
	_ "gyre/envs/search"
	_ "gyre/envs/sokoban"
	_ "gyre/envs/static"
	_ "gyre/envs/sudoku"
	_ "gyre/envs/tasks"
	_ "gyre/envs/tools"
)
