// Package hf reads and writes Hugging Face model directories: config.json in both spellings, the parameters a
// configuration implies, weights in any of the usual file layouts under canonical names, and how the two fit
// together.
//
// Defaults of absent keys are those of transformers' LlamaConfig, Qwen2Config and Qwen3Config. Whatever the decoder
// cannot compute (other architectures, rotary scalings, activations, sliding windows, quantised weights) is refused
// by name of the key.
package hf
