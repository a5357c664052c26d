// Package trainer runs reinforcement learning: the training step in RAGEN's order, what measures it, validation and early stopping; and the probe of
// one checkpoint (gyre analyze).
//
//	play ─▶ observe ─▶ select ─▶ score ─▶ advantages ─▶ critic ─▶ observe ─▶ actor        (step.go, learn)
//	                                                                           │
//	metrics.jsonl, rollouts/step_N.jsonl ◀── checkpoint ◀── validation ◀───────┘           (trainer.go, advance)
//
// rollouts.go plays or replays the episodes; select.go filters them and has the models score them; advantages.go turns rewards into advantages;
// update.go fits critic and actor. Observers (observers.go, analysis.go, components.go, tracking.go) measure and record: a step without them gives
// the same weights. Directory, models, checkpoints and resuming are package session's, arithmetic over ranks is package train's.
//
// Everything a step draws is keyed by (seed, stream, step, episode, turn), so a step can be repeated exactly from the weights, the
// optimizer state and the few counters in session.State: that is what a checkpoint holds and why a resumed run equals an uninterrupted one.
//
// Deviations from verl's PPO worker, all on purpose: no row is duplicated to fill a mini-batch (a short last mini-batch is normalised by
// its own token count); losses are normalised over the whole mini-batch instead of averaging micro-batch means; the sampler's
// log-probs serve as old log-probs when they are proven equal; learning-rate schedules act.
package trainer
