// Package analysis measures how the policy gradient is made up, without changing anything: episodes are put into buckets by the
// reward spread of their group, and for each bucket (and for all of them together) the task, entropy and KL gradients are taken.
//
//	episodes ──▶ buckets (quantile | fixed_rv) ──▶ groups ──▶ one forward, one backward per component and micro-batch
//	                                                             │
//	norms, signal and noise, cosines, blocks ◀── all ◀── bucket ◀┘   (added up, buffer by buffer)
//
// Buckets partition the batch and gradients are linear, so "all" is the sum of the buckets and costs nothing more. Every loss is
// weighted under the normaliser of the WHOLE batch, so bucket gradients add up to the gradient of the batch (profile "exact").
// Gradients of single groups tell signal from noise (Separate). The procedure this replaces is RAGEN's, which repeats the forward
// pass for every component and bucket and averages mini-batch norms; profile "paper" emulates it (paper.go).
package analysis
