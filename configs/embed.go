// Package configs holds the experiments that the program carries with it.
package configs

import "embed"

// Demo is demo.toml.
//
//go:embed demo.toml
var Demo []byte

// Init are the files with which `gyre init` begins: a folder per kind, and what the kinds other than env share.
//
//go:embed init
var Init embed.FS
