// Package openai answers OpenAI's API with the models of a host: /v1/models, /v1/chat/completions, /v1/completions and
// /v1/responses, streamed or whole.
//
//	api := openai.Mount(server, nil)
//
// A request becomes token ids (by the chat template, contents of messages as ordinary text), n requests of the host
// that differ in their seeds, and n choices of the answer. What OpenAI's API has and this one has not is refused by
// name, never ignored. Log-probs are those of the policy that trains: logits divided by the temperature (by 1 where it
// is 0), over the whole vocabulary, whatever top_p, top_k and min_p leave out.
//
// A [Sessions] may give prompts in place of the template, and is told of every reply: so a training gateway keeps a
// conversation's tokens as they were drawn.
package openai
