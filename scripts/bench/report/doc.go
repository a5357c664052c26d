// Package report is what a benchmark run found: samples by case and program, ratios between them, floors, tables, and the decision
// whether Gyre has become slower than a baseline says.
package report
