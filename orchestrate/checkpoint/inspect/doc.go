// Package inspect says what a checkpoint holds without loading it: a model directory, a GGUF file, or a single file
// of tensors.
package inspect
