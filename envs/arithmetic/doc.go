// Package arithmetic computes what policies write: + - * / ** and parentheses, read by a parser and never by an
// interpreter of some language.
package arithmetic
