// Command reference writes the table of configuration keys (docs/configuration.md) from the source of package config:
// struct tags give keys, defaults and legal values, field comments the help. `go generate ./orchestrate/config` runs
// it.
package main
