// Package work says what the benchmark measures: the cases with their shapes, the tokens every program is given, and the least time
// that a machine's arithmetic and memory allow for them.
//
// Everything random comes from fixed seeds, so that all programs and all runs get the same prompts. Repeats differ from each other:
// a cache that outlives a repeat helps nobody.
package work
