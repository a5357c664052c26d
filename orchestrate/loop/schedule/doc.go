// Package schedule computes learning rates from the number of steps done, training steps of reinforcement learning
// and optimizer steps of supervised fine-tuning: linear warm-up, then a constant, linear or cosine course (Loshchilov
// & Hutter, 2017, without restarts).
package schedule
