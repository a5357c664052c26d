// Package gateway is where agents of other programs meet the policy: their calls of OpenAI's or Anthropic's API belong
// to sessions, which keep every token as it was drawn (package session) and end with a reward.
//
//	sessions := gateway.New(tokenizer, 1024, 30*time.Minute)
//	sessions.Mount(server, openai.Mount(server, sessions.Of), anthropic.Mount(server, sessions.Of))
//
// A session has a key and an address of its own: what is asked with either belongs to it. In `gyre serve` clients open
// sessions and read their branches. In training each session is an episode (package rollout asks for a
// [rollout.Gateway], and importing this package provides it): a program that the run starts gets one, or the next
// client that asks.
package gateway
