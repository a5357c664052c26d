// Package components measures which part of the reward moves the weights where: the gradients of named parts (correctness, format,
// length …), of their total, of the entropy and of the KL term, on the same episodes and at the same weights, without changing anything.
//
//	parts ──▶ advantages per part (independent | exact)          A_k of every episode
//	episodes ──▶ one forward and one backward each ──▶ s_i       the gradient of an episode at advantage 1
//	                                                   │
//	g_k = Σ_i A_ki s_i ◀── added to K buffers ◀────────┤
//	⟨s_i, s_j⟩ ◀── sketches ◀──────────────────────────┘ ──▶ permuted advantages ──▶ the band of unrelated parts
//
// Estimators that compare whole episodes give all tokens of an episode one advantage, and at the weights that sampled nothing is
// clipped: the gradient of a part is linear in its advantages. So any number of parts share one backward pass per episode, and what
// a part's gradient would be with its rewards dealt otherwise follows from inner products alone.
package components
