// Package static asks questions of fixed data sets in the forms of MetaMathQA, GSM8K and MMLU, and lets a policy
// try again: the k-th attempt, counted from 0, earns 1/2^k if it is right.
package static
