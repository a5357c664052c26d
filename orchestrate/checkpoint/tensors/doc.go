// Package tensors describes tensors that lie in files: name, element type, shape, layout and how to get at their
// bytes. Every file format of checkpoints is read into this form, and everything that consumes weights takes it.
package tensors
