// Package child says what becomes of the gyre processes that a gyre process starts (ranks, runs of a study) when it is interrupted or killed.
package child
