// Package gguf reads GGUF files (versions 2 and 3): metadata, tensors, and what is needed to make a Hugging Face
// directory of them. Quantised tensors are dequantised to float32, in the order of operations of the format's
// reference code, so that values agree bit for bit. References: ggml's docs/gguf.md and the block layouts of
// ggml-common.h.
//
// Files are hostile until parsed: counts and lengths are bounded by what the file could hold, ranges must lie within
// it and not overlap.
package gguf
