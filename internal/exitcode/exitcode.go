// Package exitcode names the exit codes of gyre, by which studies, launchers and scripts tell how a run ended.
package exitcode

// A command that a signal ended exits with 128 + the signal's number: 130 or 143.
const (
	Done              = 0
	Failed            = 1
	Usage             = 2 // wrong usage or configuration: another attempt would end the same
	Diverged          = 3 // losses or gradients stopped being finite: another attempt would end the same
	CorruptCheckpoint = 4
	StoppedEarly      = 5 // a collapse rule ended the run: a result
)
