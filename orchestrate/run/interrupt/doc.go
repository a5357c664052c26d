// Package interrupt turns SIGINT and SIGTERM into an orderly end: the first signal asks, the second one insists.
package interrupt
