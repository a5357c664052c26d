// Package sweep runs studies: one experiment under several conditions, each with the same seeds, and says what
// differs and how sure that is.
//
//	STUDY.toml ──▶ Study ──▶ conditions × seeds ──▶ slots (a process per run) ──▶ summary, figures
//	                                 │                        │
//	                                 └────── state.json ◀─────┘
//
// A study's folder holds everything:
//
//	studies/<name>/state.json                      what is planned, running, done; written after every change
//	               runs/<condition>/seed_<n>/      run directories, as `gyre train` leaves them
//	               logs/<condition>/seed_<n>.log   what the runs said
//	               summary.{csv,json,log}, figures/
//
// Killed at any moment, a study goes on with what is missing: finished runs are not repeated, and a run that was
// under way continues from its newest checkpoint, or starts again, to the same numbers. A run that a collapse rule
// stopped is a result, of a training regime that failed; a run that cannot be finished is tried once more, reported,
// and stops nothing else.
package sweep
