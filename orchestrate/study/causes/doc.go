// Package causes names what may be wrong with a run, from what lies in its folder: metrics and episodes, no weights.
//
//	Read ──▶ History ──▶ detectors ──▶ Finding (cause, since, evidence, p) ──▶ Rank ──▶ Suspect ──▶ Prove, Table
//
// A detector is a function that tests some hypotheses of one kind of cause. Each hypothesis that is tested counts,
// whether anything was found or not: Holm's procedure keeps the chance that a sound run is accused of anything below
// 5 %. A detector that needs two things at once (a component rises, success falls) takes the larger of their p-values,
// which is a test of both (an intersection-union test).
//
// Changes are found by permutation: the largest standardised difference between the steps from one on and those before
// is compared with what it comes to when the values are dealt to the steps at random (see shift).
package causes
