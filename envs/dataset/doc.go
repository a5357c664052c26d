// Package dataset plays files of prompts and answers: each row is an episode, whose reply is the policy's whole
// text and is judged by the components of gyre/envs/reward. Rows come in a new order in every epoch, and the order
// follows from the seeds alone; after a wrong answer the environment may ask again.
//
// It also makes sums of its own (tag Arithmetic), for policies that learn from nothing.
package dataset
