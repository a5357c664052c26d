// Package openai answers OpenAI's API with the models of a host: /v1/models, /v1/chat/completions, /v1/completions and
// /v1/responses, streamed or whole.
//
//	api := openai.Mount(server, nil)
//
// Package talk draws the replies: n choices of an answer are n requests of the host that differ in their seeds. What
// OpenAI's API has and this one has not is refused by name, never ignored. Log-probs are those of the policy that
// trains: logits divided by the temperature (by 1 where it is 0), over the whole vocabulary, whatever top_p, top_k and
// min_p leave out.
package openai
