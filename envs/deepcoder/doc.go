// Package deepcoder asks for programs and runs them against hidden tests, in the form of the DeepCoder data set.
package deepcoder
