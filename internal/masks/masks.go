// Package masks reads masks of tokens, which are true where the policy sampled the token.
package masks

import "iter"

// Tokens visits the sampled tokens of a sequence, in order.
func Tokens(mask []bool) iter.Seq[int] {
	return func(yield func(token int) bool) {
		for token, sampled := range mask {
			if sampled && !yield(token) {
				return
			}
		}
	}
}

// Places visits the sampled tokens of many sequences, row after row.
func Places(rows [][]bool) iter.Seq2[int, int] {
	return func(yield func(row, token int) bool) {
		for row, mask := range rows {
			for token := range Tokens(mask) {
				if !yield(row, token) {
					return
				}
			}
		}
	}
}

// Count counts the sampled tokens of a sequence.
func Count(mask []bool) (n int) {
	for range Tokens(mask) {
		n++
	}
	return n
}
