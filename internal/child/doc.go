// Package child looks after programs that a gyre process starts: what becomes of its own processes (ranks, runs of a
// study) when it is interrupted or killed, and what a program said last before it failed.
package child
