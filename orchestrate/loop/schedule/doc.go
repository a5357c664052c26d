// Package schedule computes learning rates from the number of optimizer steps done: linear warm-up, then a constant,
// linear or cosine course (Loshchilov & Hutter, 2017, without restarts).
package schedule
