// Package offline reads what runs have left (files of component gradients, histories of rewards, validation replies
// with their log-probs), ours or the rldynamic project's, and makes tables and figures of it. Package tracking writes
// the histories while a run goes on.
//
// What is not defined (the cosine of a gradient that is zero) is NaN here, null in JSON, empty in CSV and a gap in
// figures; it is never taken for 0.
package offline
