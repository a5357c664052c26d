// Command reference writes docs/from-ragen.md from the tables of package translate. `go generate
// ./orchestrate/compat/translate` runs it.
package main
