// Package experiment opens what a configuration names: the models, their tokenizer and chat template, the sampler
// that plays with them, the threads that compute, and how much memory all of it takes. Every command opens them here,
// so that one rule says where a checkpoint's policy lies, whether its files are what was saved, and which sizes fit
// together.
//
//	checkpoint.Find ─▶ Open (checks, no weights) ─▶ Model.Load, Experiment.NewSampler ─▶ ProveExact
//	                       │
//	                       └─▶ PlanMemory (what `gyre train --dry-run` prints)
//
// Open reads everything but weights: what it refuses, a run would refuse at its start.
package experiment
