// The bench program runs Gyre and the programs that it is compared with on the same work, and says how they compare.
//
//	bench [flags]          everything; see -help
//	bench check [flags]    Gyre alone against the baseline of this kind of machine; exit code 1 on a regression
//
// Each program runs in a worker process of its own (packages worker and gyre, scripts in peers/). Workers of a session
// live side by side; for every case they take turns, A B C A B C, so that whatever else the machine does falls on all
// of them alike, and ratios are taken repeat by repeat. docs/benchmarks.md says how to read the result.
package main
