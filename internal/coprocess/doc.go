// Package coprocess runs a program that is talked to line by line over its standard input and output, and ends it
// whatever it does.
package coprocess
