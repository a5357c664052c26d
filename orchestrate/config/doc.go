// Package config reads experiments: TOML files with key=value overrides into typed, checked structs.
//
// Everything wrong with a configuration is reported at once, with the line or the override it comes from, what was
// expected and the nearest legal name. Every key has a default; Resolved writes all of them.
package config

//go:generate go test -run TestReferenceIsUpToDate -args -update
