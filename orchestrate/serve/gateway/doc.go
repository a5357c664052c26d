// Package gateway is where agents of other programs meet the policy: their calls of OpenAI's API belong to sessions,
// which keep every token as it was drawn (package session) and end with a reward.
//
//	sessions := gateway.New(tokenizer, gateway.Limits{})
//	api := openai.Mount(server, sessions.Of)
//	sessions.Mount(server, api)
//
// A session has a key and an address of its own: what is asked with either belongs to it. In `gyre serve` clients open
// sessions and read their branches. In training each session is an episode (package rollout asks for a
// [rollout.Gateway], and importing this package provides it): a program that the run starts gets one, or the next
// client that asks.
package gateway
