// Package policyinit makes small policies from nothing: a decoder of any supported family with random weights, and a
// byte-level BPE tokenizer learned from what the environments and the agent loop will say. Everything follows from
// the options, seed included.
package policyinit
