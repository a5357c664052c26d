// Package bpe reads, runs and trains byte-level BPE tokenizers in Hugging Face's tokenizer.json format.
//
// It gives the ids of the Rust crate "tokenizers" for the pipelines it knows: a Unicode normal form (or none), the
// pre-tokenizers ByteLevel, Digits, and Split with the patterns of GPT-2, Qwen2 and Llama 3, a BPE model, and post-processors
// that put fixed tokens around a text. Every other pipeline (SentencePiece's Metaspace, Unigram, WordPiece, unknown
// patterns, byte fallback, dropout) is refused at load time with an error that names it: a tokenizer that is nearly right
// silently trains on the wrong ids.
//
// Cost: encoding takes O(n log n) time and O(n) memory in the length of the text, whatever the text. A Tokenizer is safe for
// concurrent use.
package bpe
