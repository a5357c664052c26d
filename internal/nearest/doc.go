// Package nearest finds the name somebody probably meant.
package nearest
