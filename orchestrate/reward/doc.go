// Package reward grades replies: the registry of named reward components, the grading of mathematical answers, the
// functions of the rldynamic project under their own names (with their own values), and the files that track rewards
// over a run.
//
// A component is one unweighted number per reply ("correctness", "format", "length"); weights and the tokens that carry
// it belong to the experiment.
package reward
