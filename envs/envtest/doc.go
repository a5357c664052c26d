// Package envtest opens environments in the tests of their packages.
package envtest
