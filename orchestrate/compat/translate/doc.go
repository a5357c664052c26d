// Package translate makes Gyre's configurations of other programs': Hydra overrides and resolved YAML of RAGEN and
// verl, and the words of the first RAGEN's train.sh.
//
//	words.go       from words and files to settings by their keys
//	translate.go   from settings to a document
//	document.go    the TOML document, with where each of its lines comes from
//	table.go       what every key becomes, or why nothing does: the tables of docs/from-ragen.md
//	ragen.go, verl.go, trainsh.go   settings that act together, and rules where none is given
package translate
