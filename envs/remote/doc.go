// Package remote plays environments that run in a program of their own, in any language: behind HTTP, or as a local
// process that is talked to over its standard input and output. docs/remote-environments.md describes the protocol,
// scripts/remote_env.py is a server for environments written in Python.
//
// Calls of many environments that wait at the same moment go as one request, where the server takes that.
//
// The other side is not trusted. It may be slow, die, hang or lie: what it says is bounded and checked, calls end
// with their context, failed ones are asked again with growing pauses as long as their time allows (steps are
// numbered, so that none is executed twice), and a server that stays away is left alone for a while, so that a run
// does not wait for it again and again. What cannot be mended fails the episode.
package remote
