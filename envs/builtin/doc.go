// Package builtin registers the environments that ship with Gyre; import it for effect. A new environment is one
// folder under envs and one line here.
package builtin

import (
	_ "gyre/envs/bandit"
	_ "gyre/envs/frozenlake"
	_ "gyre/envs/sokoban"
)
