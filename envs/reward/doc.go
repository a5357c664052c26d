// Package reward grades replies: the registry of named reward components, the grading of mathematical answers, and the
// functions of the rldynamic project under their own names (with their own values).
//
// A component is one unweighted number per reply ("correctness", "format", "length"); weights and the tokens that carry
// it belong to the experiment.
package reward
