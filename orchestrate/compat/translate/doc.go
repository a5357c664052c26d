// Package translate makes Gyre's configurations of other programs': Hydra overrides and resolved YAML of RAGEN and
// verl, and the words of the first RAGEN's train.sh.
//
//	translate.go   from words and files to settings by their keys, and from those to a document
//	document.go    the TOML document, with where each of its lines comes from
//	ragen.go       what RAGEN's and verl's keys become, with RAGEN's task configurations
//	trainsh.go     what the keys of train.sh become
//
// The tables say of every key what it becomes or why nothing does; docs/from-ragen.md is written from them.
package translate

//go:generate go run ./reference ../../../docs/from-ragen.md
