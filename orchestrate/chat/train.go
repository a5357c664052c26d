package chat

import "gyre/orchestrate/chat/bpe"

// TrainBPE learns a byte-level BPE vocabulary of at most vocabSize tokens from corpus and returns it as a tokenizer.json,
// with specials as the first ids. See bpe.Train.
func TrainBPE(corpus []string, vocabSize int, specials []string) ([]byte, error) {
	return bpe.Train(corpus, vocabSize, specials)
}
