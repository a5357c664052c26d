// Package importance corrects for tokens that another policy drew than the one that is trained: it weighs them by the
// ratio of the two, bounds that ratio, and leaves out what is too far away.
//
// With e = p - b, the proximal policy's log-prob of a token less the behaviour policy's, the ratio W of a token is
//
//	token      exp(e)
//	sequence   exp(Σ e) over the sampled tokens of its episode
//	geometric  exp(mean of e) over them
//
// and every exponent is clamped to ±20. Correction "truncate" weighs a token by clamp(W, low, high) (truncated
// importance sampling, TIS), "mask" by W inside [low, high] and by 0 outside (IcePop). Rejection takes tokens, or whole
// episodes, out of the batch whose ratio is outside [reject_low, reject_high], or whose k3 divergence, the mean of
// exp(e) - 1 - e, exceeds reject_high (MIS; verl's rollout_corr_helper.py).
package importance
