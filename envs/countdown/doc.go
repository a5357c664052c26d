// Package countdown is the numbers game: combine the given numbers with + - * / and parentheses so that they make the
// target. One answer ends the episode.
//
//	env.go      the environment, its rewards and its expert
//	problem.go  problems from the seed or from a file, and their solution by search
//	options.go  options and the tag
package countdown
