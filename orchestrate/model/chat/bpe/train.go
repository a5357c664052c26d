package bpe

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
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
	tr := &trainer{pairs: map[uint64]*pairCount{}}
	for i, s := range specials {
		if s == "" || slices.Contains(specials[:i], s) {
			return nil, fmt.Errorf("special token %d is %q: expected different, non-empty ones", i, s)
		}
		tr.tokens = append(tr.tokens, s)
	}
	first := int32(len(specials))
	for b := range 256 {
		tr.tokens = append(tr.tokens, string(byteToRune[b]))
	}
	tr.count(texts, first)
	merges := tr.learn(vocabSize, len(specials))
	return tr.file(merges, specials)
}

// pairCount is a pair of tokens, how often it occurs, and where it may.
type pairCount struct {
	a, b  int32
	count int
	words map[int]struct{}
	queue int // the count under which it stands in the queue
}

type trainer struct {
	tokens []string // by id, spelled
	words  [][]int32
	counts []int
	pairs  map[uint64]*pairCount
	queue  pairQueue
}

// count splits texts into words and counts words and pairs.
func (tr *trainer) count(texts []string, firstByte int32) {
	stages := []stage{{split: modern{digits: 1}}}
	seen := map[string]int{}
	for _, text := range texts {
		words(stages, forms["NFC"].apply(ToValidUTF8(text)), func(w string) { seen[w]++ })
	}
	for i, w := range slices.Sorted(maps.Keys(seen)) {
		ids := make([]int32, len(w))
		for j := range len(w) {
			ids[j] = firstByte + int32(w[j])
		}
		tr.words, tr.counts = append(tr.words, ids), append(tr.counts, seen[w])
		for j := 1; j < len(ids); j++ {
			tr.change(ids[j-1], ids[j], i, seen[w])
		}
	}
	for _, p := range tr.pairs {
		p.queue = p.count
		tr.queue = append(tr.queue, queued{p, p.count})
	}
	heap.Init(&tr.queue)
}

// change adds by to the count of a pair in word.
func (tr *trainer) change(a, b int32, word, by int) *pairCount {
	p := tr.pairs[pairKey(a, b)]
	if p == nil {
		p = &pairCount{a: a, b: b, words: map[int]struct{}{}}
		tr.pairs[pairKey(a, b)] = p
	}
	p.count += by
	if by > 0 {
		p.words[word] = struct{}{}
	}
	return p
}

// learn merges the most frequent pair until the vocabulary is full. The ids below specials are never made.
func (tr *trainer) learn(vocabSize, specials int) (merges [][2]string) {
	known := map[string]int32{}
	for id, token := range tr.tokens {
		known[token] = int32(id)
	}
	for len(tr.tokens) < vocabSize && len(tr.queue) > 0 {
		top := heap.Pop(&tr.queue).(queued)
		p := top.pair
		if p.queue != top.count { // an older entry
			continue
		}
		if p.count != top.count {
			tr.enqueue(p)
			continue
		}
		if p.count < 2 {
			break
		}
		a, b := tr.tokens[p.a], tr.tokens[p.b]
		id, ok := known[a+b]
		if !ok {
			id = int32(len(tr.tokens))
			tr.tokens = append(tr.tokens, a+b)
			known[a+b] = id
		} else if int(id) < specials {
			p.queue = 0 // text must not be able to spell a special token
			continue
		}
		merges = append(merges, [2]string{a, b})
		tr.merge(p, id)
	}
	return merges
}

func (tr *trainer) enqueue(p *pairCount) {
	p.queue = p.count
	if p.count > 0 {
		heap.Push(&tr.queue, queued{p, p.count})
	}
}

// merge replaces the pair by id in every word that has it, and recounts the pairs around.
func (tr *trainer) merge(p *pairCount, id int32) {
	touched := map[*pairCount]struct{}{}
	for w := range p.words {
		word, n := tr.words[w], tr.counts[w]
		out := word[:0:0]
		for i := 0; i < len(word); i++ {
			if i+1 < len(word) && word[i] == p.a && word[i+1] == p.b {
				out = append(out, id)
				i++
			} else {
				out = append(out, word[i])
			}
		}
		if len(out) == len(word) {
			continue
		}
		for i := 1; i < len(word); i++ {
			tr.change(word[i-1], word[i], w, -n)
		}
		for i := 1; i < len(out); i++ {
			touched[tr.change(out[i-1], out[i], w, n)] = struct{}{}
		}
		tr.words[w] = out
	}
	for q := range touched {
		if q.count != q.queue {
			tr.enqueue(q)
		}
	}
}

// file writes the tokenizer.json.
func (tr *trainer) file(merges [][2]string, specials []string) ([]byte, error) {
	type object = map[string]any
	vocab := make(object, len(tr.tokens))
	for id, token := range tr.tokens {
		if _, twice := vocab[token]; twice {
			return nil, fmt.Errorf("special token %q is also the spelling of a byte: expected another one", token)
		}
		vocab[token] = id
	}
	added := []object{}
	for id, s := range specials {
		added = append(added, object{"id": id, "content": s, "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": true})
	}
	if merges == nil {
		merges = [][2]string{}
	}
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	split := object{"type": "Split", "pattern": object{"Regex": patternQwen2}, "behavior": "Isolated", "invert": false}
	data, err := json.MarshalIndent(object{
		"version": "1.0", "truncation": nil, "padding": nil,
		"added_tokens":   added,
		"normalizer":     object{"type": "NFC"},
		"pre_tokenizer":  object{"type": "Sequence", "pretokenizers": []object{split, byteLevel}},
		"post_processor": nil,
		"decoder":        byteLevel,
		"model": object{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil,
			"fuse_unk":           false, "byte_fallback": false, "ignore_merges": false, "vocab": vocab,
			"merges": merges},
	}, "", " ")
	if err != nil {
		return nil, errors.Join(errors.New("cannot write tokenizer.json"), err)
	}
	return data, nil
}

// queued is a pair with its count at the time.
type queued struct {
	pair  *pairCount
	count int
}

// pairQueue pops the most frequent pair; of equals the one with the smaller ids.
type pairQueue []queued

func (q pairQueue) Len() int      { return len(q) }
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q pairQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[j].count, q[i].count), cmp.Compare(q[i].pair.a, q[j].pair.a), cmp.Compare(q[i].pair.b,
		q[j].pair.b)) < 0
}
func (q *pairQueue) Push(x any) { *q = append(*q, x.(queued)) }
func (q *pairQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
