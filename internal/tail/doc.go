// Package tail keeps the end of what a program writes to its standard error, which says best why it failed.
package tail
