// Package safetensors reads and writes the safetensors format (huggingface/safetensors): 8 bytes of header length, a
// JSON header that maps tensor names to type, shape and byte range, then the data.
//
// Files are hostile until parsed: the header is bounded and strict, sizes are checked without overflow, and the
// ranges must cover the data exactly, without holes or overlaps.
package safetensors
