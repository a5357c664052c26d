// Package docs holds the page that is also a table of the program.
package docs

import _ "embed"

// FromRAGEN is from-ragen.md: package translate reads what settings of RAGEN and verl become.
//
//go:embed from-ragen.md
var FromRAGEN string
