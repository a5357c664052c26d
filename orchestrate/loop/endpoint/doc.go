// Package endpoint lets a server with OpenAI's interface answer in the place of this process's engine, so that episodes
// are played with any model that somebody serves.
//
//	server, err := endpoint.Open(ctx, endpoint.Config{URL: "http://localhost:8000"}, tokenizer)
//	player.Ask(server)
//
// A server that shows that its tokens are those of the tokenizer (it returns prompt_token_ids, as vLLM and `gyre serve`
// do, and they are what the chat template gives here) gets the prompts as token ids and returns ids: its replies are
// what the engine would have sampled, token for token. Any other server gets messages and returns text. Such a reply
// need not begin with the block that the engine's replies are made to begin with, its tokens are counted by the server,
// and its log-probs are not known.
//
// A request that fails in a way that may pass (408, 409, 425, 429, 5xx, a broken connection, no answer in time) is made
// again, after Retry-After where the server says so. How long an answer may take follows from the slowest so far, and
// doubles for a request whose time ran out, so that a server that hangs costs little and a slow reply is never cut.
package endpoint
