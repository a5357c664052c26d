// Package collapse measures whether a policy's thoughts still depend on what it was shown (RAGEN-2, arXiv 2604.06268).
//
// A policy that has collapsed to a template thinks the same whatever the prompt. Its thoughts may be varied all the
// same, so that entropy alone does not show it: what has gone is the mutual information between prompt X and thought
// Z. It is estimated in the batch: each sampled thought is scored under its own prompt and under the others',
//
//	ℓ[i][j] = log p(Z_i | X_j)        matched a_i = ℓ[i][own(i)]        marginal g_i = log mean_j exp ℓ[i][j]
//	I(X; Z) ≈ mean (a − g) ≤ log N    H(Z|X) ≈ −mean a                  H(Z) ≈ −mean g
//
// Low information with high conditional entropy is template collapse; both low is entropy collapse.
//
//	turn.go      thoughts of an episode's turns
//	sample.go    which of them are measured
//	estimate.go  the numbers of a matrix ℓ
package collapse
