// Package search asks questions whose answers stand in a corpus of documents. A policy calls the tools search and
// read, and then answers; exact match and the F1 of words with the right answers, as SQuAD counts them, are the
// reward.
//
//	corpus.go     the documents, and their ranking by BM25
//	questions.go  questions of a file, HotpotQA's form included
//	score.go      when an answer is right
//	env.go        the environment, its options and its tags
package search
