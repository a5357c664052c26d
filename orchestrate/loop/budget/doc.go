// Package budget decides how many episodes each group of a coming batch has (sampling.budget = "adaptive").
//
// A group of n episodes whose rewards have the variance σ², and whose score functions have the mean squared norm h, adds
// about h·σ²/(n − 1) to the variance of a batch's gradient when baselines are leave-one-out means. σ² is predicted from
// what was seen of the group's task and of its source:
//
//	state.go      what was seen: discounted counts, saved in checkpoints
//	posterior.go  the Beta posterior of a task's success, and what it says of rewards
//	allocate.go   Neyman's allocation with a floor, episode by episode
//	calibrate.go  predictions compared with what came
//
// The sizes of a batch follow from earlier batches alone, so that a group's size is independent of its episodes given
// the past. docs/budget.md derives why the expected gradient is then that of equal sizes.
package budget
