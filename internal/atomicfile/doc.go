// Package atomicfile makes files and directories appear under their names whole or not at all: readers, and a crash of
// the process or of the machine at any moment, see the old one or the new one. Work goes into a temporary file or
// directory beside the target, everything is synced, and a rename publishes it.
//
// What is temporary carries an advisory lock (flock) of the process that fills it, so that the leftovers of a killed
// process are told from work in progress: Sweep removes them, and so does the next BeginDir beside them.
package atomicfile
