// Package anthropic answers Anthropic's Messages API with the models of a host: /v1/messages, whole or streamed, and
// /v1/messages/count_tokens.
//
//	api := anthropic.Mount(server, nil)
//
// A request becomes the messages, tools and variables of a chat, as those of package openai do, and package talk draws
// the reply. Its parts are blocks: what was thought (<think>…</think> at the beginning), text, calls. A client sends
// blocks back as they are; a signature tells whether thinking was changed on the way. What Anthropic's API has and this
// one has not is refused by name, never ignored.
package anthropic
