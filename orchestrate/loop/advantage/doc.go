// Package advantage turns rewards into advantages: how much better than expected each sampled token was.
//
// All slices are token-aligned, one per episode. Only sampled tokens (mask true) exist in time: observations and chat
// markup between them are skipped, so the token after a reply's last one is the next reply's first one. Rewards
// belong on sampled tokens; those on other tokens are ignored by the estimators that use a critic. Arithmetic is in
// float64.
//
// Estimators:
//
//	gae                     generalised advantage estimation over sampled tokens (Schulman et al., 2016)
//	bi_level_gae            GAE over turns, then over the tokens of each turn (VAGEN, Wang et al., 2025)
//	grpo                    return relative to its group, in standard deviations (Shao et al., 2024); without the
//	                        division it is Dr.GRPO (Liu et al., 2025)
//	rloo                    return relative to the mean of the group's others (Ahmadian et al., 2024)
//	reinforce_pp            whitened reward-to-go over all sampled tokens that follow (REINFORCE++, Hu et al., 2025)
//	reinforce_pp_baseline   whitened return relative to the group's mean
//	brpo                    grpo with the whole batch as one group (RAGEN, Wang et al., 2025)
package advantage
