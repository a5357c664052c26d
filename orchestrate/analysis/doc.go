// Package analysis measures how the policy gradient is made up, without changing anything: episodes are put into buckets by the
// reward spread of their group, and for each bucket (and for all of them together) the norms of the task, entropy and KL gradients
// are taken.
//
//	episodes ──▶ Buckets (quantile | fixed_rv) ──▶ one forward, one backward per component and micro-batch
//	                                                     │ added into the bucket's buffers
//	                                  norms, losses ◀────┴────▶ added into the buffers of "all"
//
// Buckets partition the batch and gradients are linear, so "all" is the sum of the buckets and costs nothing more. Every loss is
// weighted under the normaliser of the WHOLE batch, so bucket gradients add up to the gradient of the batch (profile "exact").
// The procedure it replaces is RAGEN's (docs/guide_gradient_analysis of that project), which repeats the forward pass for every
// component and bucket and averages mini-batch norms.
package analysis
