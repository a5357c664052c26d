// Package session keeps what a client and a model said to one another as exact tokens.
//
//	history := session.New(tokenizer)
//	prompt, err := history.Prompt(messages, tools) // as the client sends them: all of the conversation, every time
//	… sample a continuation of prompt.IDs …
//	prompt.Reply(ids, logprobs, message)           // message: what the client is given
//
// Clients of OpenAI's API send the whole conversation with each call. A History matches it against its own tokens: what
// the model said is never tokenized again, and what follows a reply is encoded as [chat.Conversation.Continue] does. It
// is a tree, because a client may go on from any reply of before. A call takes the branch on which most of its messages
// stand; if a client edits history, the rest is a new branch that begins with the exact tokens of what was kept.
//
// These are no edits, as they are what templates and harnesses do to messages that they send back:
//
//   - white space at the ends of any message;
//   - thinking that is left out of a reply: <think>…</think>, all before a lone </think>, or all after a <think> that
//     was never closed;
//   - the order of the results of tools between two replies, and the ids and JSON layout of the calls.
//
// The policy goes on from its own tokens then, thinking included. A change of the tools, which stand at the beginning
// of the prompt, begins a conversation without a common prefix.
package session
