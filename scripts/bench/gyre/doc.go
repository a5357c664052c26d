// Package gyre is the benchmark's worker for Gyre itself: the tasks of package work through the same packages that the gyre command
// uses. Generation and rollouts go through the sampling engine, log-probs and updates through the model's own calls, and a GRPO step
// through the trainer, with an environment whose states are given texts.
package gyre
