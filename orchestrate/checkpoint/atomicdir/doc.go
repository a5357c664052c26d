// Package atomicdir makes directories appear whole or not at all, also across a crash of the machine: work goes into
// a temporary directory beside the target, every file and directory is synced, and a rename publishes it.
//
// A temporary directory carries an advisory lock (flock) of the process that fills it, so that the leftovers of a
// killed process are told from work in progress and removed by the next Begin beside them.
package atomicdir
