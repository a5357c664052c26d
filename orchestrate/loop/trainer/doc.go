// Package trainer runs experiments: the training step in RAGEN's order, validation, early stopping, checkpoints and resume.
//
//	rollout ─▶ filter ─▶ old/reference log-probs, values ─▶ advantages ─▶ critic update ─▶ gradient analysis ─▶ actor update
//	                                                                                                   │
//	           metrics.jsonl, rollouts/step_N.jsonl ◀── checkpoint ◀── validation ◀────────────────────┘
//
// A run (run.go) has a directory, models (models.go) and a State, from which it resumes (resume.go); its phases are types with the state that
// belongs to them: rollouts, preparation, update, gradientAnalysis, componentGradients, checkpoints. Trainer (trainer.go around step.go) and SFT are
// runs, a probe (gyre analyze) is a gradientAnalysis without one. What a configuration names is opened by package experiment. A step's line of metrics
// is made by its phases, metrics.go and clock.go; ranks.go is what several processes do about it.
//
// Everything a step draws is keyed by (seed, stream, step, episode, turn), so a step can be repeated exactly from the weights, the
// optimizer state and the few counters in State: that is what a checkpoint holds and why a resumed run equals an uninterrupted one.
//
// Deviations from verl's PPO worker, all on purpose: no row is duplicated to fill a mini-batch (a short last mini-batch is normalised by
// its own token count); losses are normalised over the whole mini-batch instead of averaging micro-batch means; the sampler's
// log-probs serve as old log-probs when they are proven equal; learning-rate schedules act.
package trainer
