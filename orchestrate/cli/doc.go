// Package cli is the gyre command: one file per verb, each a thin caller of the package that does the work.
//
// Results go to stdout, logs and progress to stderr. Exit codes are listed in errors.go.
package cli
