// Package deepcoder asks for programs and runs them against hidden tests, in the form of the DeepCoder data set.
//
//	problem.go   problems and tests from files
//	judge.go     running a program and comparing what it does with what is expected
//	env.go       the environment, its options and its tag
package deepcoder
