// Package search asks questions whose answers stand in a corpus of documents. A policy calls the tools search and
// read, and then answers; exact match and the F1 of words with the right answers, as SQuAD counts them, are the
// reward.
package search
