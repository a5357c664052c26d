// Package torch is the Go face of csrc: models, gradients, optimizers and the sampling engine behind the C ABI
// csrc/gyre.h.
//
// A [Tensor] is a handle to an at::Tensor of libtorch, the same pointer that gotorch programs hold; [Tensor.Handle] and
// [FromHandle] are the bridge between the two. Parameters, gradients and optimizer moments are reached as tensors that
// alias the C++ storage, so nothing is copied until CopyIn or CopyOut says so.
//
// Everything that has one value per token is token-aligned: entry t of log-probs, values, advantages and masks speaks
// of token t given the tokens before it in its sequence, so the entry of a sequence's first token is undefined and its
// mask is 0.
//
// All calls run one at a time on a single locked OS thread. They may be made
// from any goroutine and do not take a context: a call lasts as long as its forward or backward pass.
//
// Handles are closed explicitly. Close may be called twice; any other use after Close returns [ErrClosed]. A model
// closed while engines or optimizers made from it are open is freed with the last of them.
package torch
