// Package pull downloads models from a Hugging Face hub, or a mirror of one, over its plain HTTP interface.
// Interrupted downloads go on where they stopped; sizes and, where the hub names them, SHA-256 digests are checked
// before the directory gets its name.
package pull
