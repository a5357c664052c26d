// Package filter keeps the groups of a step that are worth training on.
//
// A group is the set of episodes that started from the same state. Groups are scored by one statistic of their
// members (by default the standard deviation of rewards: a group whose members all earn the same teaches a
// group-relative estimator nothing) and a strategy selects among the scores. The statistics, strategies, thresholds
// and metric names are those of RAGEN's rollout filter (Wang et al., "RAGEN", 2025; the reward-variance filter of its
// second version), with its unspecified cases settled: ties go to the lower index, groups whose score is not a number
// are dropped and counted, and comparisons hold as they would for real numbers (RAGEN's hold as they happen to in
// float32): deviations are rounded to twelve digits, equal scores have none, and shares may fall short by rounding.
package filter
