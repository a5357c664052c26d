// Package docs holds the page that the program reads itself.
package docs

import _ "embed"

// Commands is commands.md: what the help of a verb says besides its flags.
//
//go:embed commands.md
var Commands string
