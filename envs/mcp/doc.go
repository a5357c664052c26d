// Package mcp offers the tools of MCP servers (modelcontextprotocol.io) to a policy, through the official Go SDK.
//
// What a server offers is asked once, before the first episode, so that every episode is shown the same tools. The
// first call of an episode begins a session: a program is started, or an HTTP server is asked for a session of its own.
// The episode's end ends it. Episodes thus share nothing, unless a server lets its sessions share.
//
// A server is the user's own program and runs as the user does, but it may hang, die or answer too much. A session
// that does not answer in time is ended, and the policy is told. One that dies fails the episode.
package mcp
