// Package algebra decides whether two answers in LaTeX have the same value: numbers, expressions, lists, intervals,
// sets, matrices, relations. It is a small computer algebra system for package answer and for verifying arithmetic.
//
// Trim takes off what stands around an answer, Equal compares two, Arithmetic evaluates one of whole numbers. An
// answer goes through these files:
//
//	lex.go       text → tokens; commands that mean the same get one name
//	parse.go     tokens → tree: lists, relations, sums, products, powers
//	atom.go      the leaves: numerals, functions, brackets, matrices
//	evaluate.go  tree → exact rational number, or complex values at fixed points
//	equal.go     when two trees are the same
//
// Tokens, depth and the size of numbers are bounded. What cannot be read within them is an error, never a wrong value.
package algebra
