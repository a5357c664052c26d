// Package rundir knows a run directory: who may write in it, what describes the run, its log, and how others read it.
//
//	runs/<name>/config.toml   the resolved configuration
//	            run.json      id, versions, seeds, hashes, how the run ended
//	            log.txt       everything that was said, with times
//	            metrics.jsonl, tensorboard/, wandb/   what was measured (package metrics)
//	            rollouts/, global_step_N/, analysis/, plots/ belong to the packages that write them
//
// Dir is the directory of the one process that writes; Run is what plots, reports and sweeps read, during the run or
// after it.
package rundir
