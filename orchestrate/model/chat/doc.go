// Package chat turns text and messages into token ids and back, as Hugging Face's transformers does for the model
// directories it reads: tokenizer.json (package bpe), the special tokens of tokenizer_config.json, generation_config.json and
// config.json, and the chat template.
//
// Three kinds of text are kept apart:
//
//   - ordinary text (Encode with special false, the contents of messages in a Conversation): nothing in it is markup, so an
//     environment or a prompt cannot forge the end of a turn or a role;
//   - markup (EncodeMarkup, what a chat template writes): special and other added tokens are recognised;
//   - a document (Encode with special true): markup, with the tokens around it that the post-processor adds, such as a BOS.
//
// A Conversation is the token history of one episode. It only ever grows, by the ids that were sampled and by ids made from
// new messages: there is no way to tokenize a reply again.
package chat
