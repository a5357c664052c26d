// Package countdown is the numbers game: combine the given numbers with + - * / and parentheses so that they make the
// target. One answer ends the episode.
package countdown
