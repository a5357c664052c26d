// Package scale predicts what a run takes on machines that need not be there: memory of every rank (package
// experiment's plan), bytes between ranks, and seconds per phase of a step, from the shapes of the models, the
// configuration and the figures of a device.
//
//	machines.go  known devices, and this machine as it is measured
//	traffic.go   what ranks send each other
//	step.go      the phases of a step: work, traffic, time
//	advice.go    what does not fit, and which setting would mend it
//
// The formulas, and how far measured runs are from them, are in docs/scale.md.
package scale
