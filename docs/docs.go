// Package docs holds the pages that the program reads itself.
package docs

import _ "embed"

// FromRAGEN is from-ragen.md: package translate reads what settings of RAGEN and verl become.
//
//go:embed from-ragen.md
var FromRAGEN string

// Commands is commands.md: what the help of a verb says besides its flags.
//
//go:embed commands.md
var Commands string
