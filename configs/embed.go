// Package configs holds the experiments that the program carries with it.
package configs

import _ "embed"

// Demo is demo.toml.
//
//go:embed demo.toml
var Demo []byte
