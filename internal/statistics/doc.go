// Package statistics holds the few formulas by which Gyre turns many numbers into one: means, deviations, quantiles and
// confidence intervals, written once for filters, advantages, analyses, plots and benchmarks. Distributions are
// gonum's. Sums are not: gonum adds in lanes on some processors, and a seed should give the same bits on all of them.
package statistics
