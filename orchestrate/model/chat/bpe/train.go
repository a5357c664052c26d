package bpe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Train learns a byte-level BPE vocabulary from texts (Sennrich et al. 2016, on bytes) and returns it as a
// tokenizer.json with the pipeline of Qwen2: NFC, its pattern with single digits, ByteLevel. Ids are in this order:
// specials, the 256 bytes, merges. The vocabulary is smaller than vocabSize when the texts run out of pairs that occur
// twice. The result depends on the texts only as a multiset of words: of equally frequent pairs the one with the
// smaller ids merges first.
func Train(texts []string, vocabSize int, specials []string) ([]byte, error) {
	if smallest := 256 + len(specials); vocabSize < smallest || vocabSize > maxTokens {
		return nil, fmt.Errorf("vocabulary size is %d, expected %d (256 bytes and the special tokens) to %d", vocabSize,
			smallest, maxTokens)
	}
	tr := &trainer{pairs: map[[2]int32]*pairCount{}}
	var added []AddedToken
	for i, s := range specials {
		if s == "" || slices.Contains(specials[:i], s) {
			return nil, fmt.Errorf("special token %d is %q: expected different, non-empty ones", i, s)
		}
		tr.tokens = append(tr.tokens, s)
		added = append(added, AddedToken{ID: int32(i), Content: s, Special: true})
	}
	for b := range 256 {
		tr.tokens = append(tr.tokens, string(byteToRune[b]))
	}
	tr.count(texts, int32(len(specials)))
	merges := tr.learn(vocabSize, len(specials))
	pipeline := Pipelines["qwen2"]
	pipeline.PostProcessor = nil
	return pipeline.File(tr.tokens, merges, added)
}

// pairCount is how often a pair of neighbouring tokens occurs, and the words where it may.
type pairCount struct {
	pair  [2]int32
	count int
	words map[int]struct{}
	never bool // it would spell a special token
}

type trainer struct {
	tokens []string  // by id, spelled
	words  [][]int32 // the different words of the texts
	counts []int     // of each word
	pairs  map[[2]int32]*pairCount
}

// count splits texts into words and counts words and pairs.
func (tr *trainer) count(texts []string, firstByte int32) {
	stages := []stage{{scan: qwen2}}
	seen := map[string]int{}
	for _, text := range texts {
		words(stages, forms["NFC"].apply(ToValidUTF8(text)), place{}, func(w string, _ place) { seen[w]++ })
	}
	for i, w := range slices.Sorted(maps.Keys(seen)) {
		ids := make([]int32, len(w))
		for j := range len(w) {
			ids[j] = firstByte + int32(w[j])
		}
		tr.words, tr.counts = append(tr.words, ids), append(tr.counts, seen[w])
		tr.recount(i, 1)
	}
}

// recount adds a word's pairs to the counts, times sign.
func (tr *trainer) recount(word, sign int) {
	ids := tr.words[word]
	for i := 1; i < len(ids); i++ {
		key := [2]int32{ids[i-1], ids[i]}
		p := tr.pairs[key]
		if p == nil {
			p = &pairCount{pair: key, words: map[int]struct{}{}}
			tr.pairs[key] = p
		}
		p.words[word] = struct{}{}
		if p.count += sign * tr.counts[word]; p.count == 0 {
			delete(tr.pairs, key)
		}
	}
}

// learn merges the most frequent pair until the vocabulary is full. The ids below specials are never made: text must
// not be able to spell a special token.
func (tr *trainer) learn(vocabSize, specials int) (merges []string) {
	known := map[string]int32{}
	for id, token := range tr.tokens {
		known[token] = int32(id)
	}
	for len(tr.tokens) < vocabSize {
		p := tr.mostFrequent()
		if p == nil || p.count < 2 {
			break
		}
		a, b := tr.tokens[p.pair[0]], tr.tokens[p.pair[1]]
		id, ok := known[a+b]
		if ok && int(id) < specials {
			p.never = true
			continue
		}
		if !ok {
			id = int32(len(tr.tokens))
			tr.tokens = append(tr.tokens, a+b)
			known[a+b] = id
		}
		merges = append(merges, a+" "+b)
		tr.merge(p, id)
	}
	return merges
}

// mostFrequent is the pair that occurs most often; of equals, the one with the smaller ids.
func (tr *trainer) mostFrequent() (best *pairCount) {
	for _, p := range tr.pairs {
		if p.never {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(p.count, best.count), slices.Compare(best.pair[:], p.pair[:])) > 0 {
			best = p
		}
	}
	return best
}

// merge replaces the pair by id in every word that has it.
func (tr *trainer) merge(p *pairCount, id int32) {
	for w := range p.words {
		tr.recount(w, -1)
		word := tr.words[w]
		out := word[:0]
		for i := 0; i < len(word); i++ {
			if i+1 < len(word) && word[i] == p.pair[0] && word[i+1] == p.pair[1] {
				out = append(out, id)
				i++
			} else {
				out = append(out, word[i])
			}
		}
		tr.words[w] = out
		tr.recount(w, 1)
	}
}
