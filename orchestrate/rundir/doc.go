// Package rundir owns a run directory: who may write in it, what describes the run, and its log.
//
//	runs/<name>/config.toml   the resolved configuration
//	            run.json      versions, seeds, hashes, how the run ended
//	            log.txt       everything that was said, with times
//	            metrics.jsonl, rollouts/, global_step_N/, analysis/, plots/ belong to the packages that write them
package rundir
