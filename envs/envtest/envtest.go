// Package envtest opens environments in the tests of their packages.
package envtest

import (
	"errors"
	"os/exec"
	"testing"

	"gyre/envs"
	"gyre/envs/sandbox"
)

// Open makes an environment of a registered tag. A test whose environment needs walls or a program that this
// machine does not have is skipped.
func Open(t testing.TB, tag string, options map[string]any) envs.Env {
	t.Helper()
	spec, err := envs.Lookup(tag)
	if err != nil {
		t.Fatal(err)
	}
	env, err := spec.Make(options)
	if errors.Is(err, sandbox.ErrNoWalls) || errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { env.Close() })
	return env
}

// Play opens an environment and resets it to a seed. E is the type that the package's tests look into.
func Play[E envs.Env](t testing.TB, tag string, options map[string]any, seed int64) E {
	t.Helper()
	env := Open(t, tag, options)
	if _, err := env.Reset(t.Context(), seed, 0); err != nil {
		t.Fatal(err)
	}
	return env.(E)
}
