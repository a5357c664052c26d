package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
)

const (
	maxTokens     = 1 << 22 // ids a vocabulary may use: bounds the tables a hostile file can ask for
	maxCachedWord = 64      // bytes; longer words are rare and dear to keep
	maxCached     = 1 << 16 // words
)

// model is the BPE model: it turns one word (raw bytes) into ids.
type model struct {
	vocab        map[string]int32 // spelled tokens, as in the file
	raw          map[string]int32 // tokens by the bytes they stand for
	bytes        [256]int32       // ids of single bytes, -1 where the vocabulary has none
	rules        map[uint64]rule
	unk          int32 // -1: unknown bytes are dropped
	fuseUnk      bool
	ignoreMerges bool // a word that is a token is that token, whatever the merges

	mu    sync.RWMutex
	cache map[string][]int32
}

// mergeList accepts both spellings of merges: "a b" and ["a", "b"].
type mergeList [][2]string

func (l *mergeList) UnmarshalJSON(data []byte) error {
	inner := bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(data), []byte("[")))
	if bytes.HasPrefix(inner, []byte("[")) {
		var pairs [][]string
		if err := json.Unmarshal(data, &pairs); err != nil {
			return err
		}
		for i, p := range pairs {
			if len(p) != 2 {
				return fmt.Errorf("merge %d has %d parts, expected 2", i, len(p))
			}
			*l = append(*l, [2]string{p[0], p[1]})
		}
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return fmt.Errorf("merge %d is %q, expected two tokens and one space", i, line)
		}
		*l = append(*l, [2]string{a, b})
	}
	return nil
}

func parseModel(data json.RawMessage) (*model, error) {
	var f struct {
		Type         string
		Vocab        json.RawMessage
		Merges       json.RawMessage
		Dropout      *float64
		UnkToken     *string `json:"unk_token"`
		Prefix       *string `json:"continuing_subword_prefix"`
		Suffix       *string `json:"end_of_word_suffix"`
		FuseUnk      bool    `json:"fuse_unk"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
	}
	if isNull(data) {
		return nil, errors.New("model is missing")
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	switch {
	case f.Type != "BPE" && f.Type != "":
		return nil, fmt.Errorf("model %q is not supported: expected BPE (byte-level)", f.Type)
	case f.Dropout != nil && *f.Dropout != 0:
		return nil, fmt.Errorf("model.dropout is %v: ids would be random, expected null", *f.Dropout)
	case f.ByteFallback:
		return nil, errors.New("model.byte_fallback is set: SentencePiece-style BPE is not supported, expected " +
			"byte-level BPE")
	case f.Prefix != nil && *f.Prefix != "":
		return nil, fmt.Errorf("model.continuing_subword_prefix is %q, expected none", *f.Prefix)
	case f.Suffix != nil && *f.Suffix != "":
		return nil, fmt.Errorf("model.end_of_word_suffix is %q, expected none", *f.Suffix)
	}
	m := &model{unk: -1, fuseUnk: f.FuseUnk, ignoreMerges: f.IgnoreMerges, cache: map[string][]int32{}}
	if err := json.Unmarshal(f.Vocab, &m.vocab); err != nil {
		return nil, fmt.Errorf("model.vocab: %w (expected an object of token: id)", err)
	}
	var merges mergeList
	if err := json.Unmarshal(f.Merges, &merges); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	if f.UnkToken != nil {
		id, ok := m.vocab[*f.UnkToken]
		if !ok {
			return nil, fmt.Errorf("model.unk_token %q is not in model.vocab", *f.UnkToken)
		}
		m.unk = id
	}
	return m, m.build(merges)
}

// build makes the tables from the vocabulary and its merges.
func (m *model) build(merges mergeList) error {
	m.raw = make(map[string]int32, len(m.vocab))
	for token, id := range m.vocab {
		if id < 0 || id >= maxTokens {
			return fmt.Errorf("model.vocab gives token %q the id %d, expected 0 to %d", token, id, maxTokens-1)
		}
		if raw, ok := unspell(token); ok {
			m.raw[raw] = id
		}
	}
	for b := range 256 {
		id, ok := m.raw[string([]byte{byte(b)})]
		if !ok {
			id = -1
		}
		m.bytes[b] = id
	}
	m.rules = make(map[uint64]rule, len(merges))
	for rank, p := range merges {
		a, okA := m.vocab[p[0]]
		b, okB := m.vocab[p[1]]
		joined, okJ := m.vocab[p[0]+p[1]]
		if !okA || !okB || !okJ {
			return fmt.Errorf("model.merges[%d] joins %q and %q, but not all of them and their union are in model.vocab", rank, p[0], p[1])
		}
		m.rules[pairKey(a, b)] = rule{int32(rank), joined}
	}
	return nil
}

// without returns a model that never produces the given ids, or m itself if it cannot produce them anyway.
func (m *model) without(ids map[int32]bool) *model {
	reachable := false
	for _, r := range m.rules {
		reachable = reachable || ids[r.id]
	}
	for _, id := range m.raw {
		reachable = reachable || m.ignoreMerges && ids[id]
	}
	if !reachable {
		return m
	}
	c := &model{vocab: m.vocab, raw: map[string]int32{}, bytes: m.bytes, rules: map[uint64]rule{}, unk: m.unk,
		fuseUnk: m.fuseUnk, ignoreMerges: m.ignoreMerges, cache: map[string][]int32{}}
	for s, id := range m.raw {
		if !ids[id] {
			c.raw[s] = id
		}
	}
	for k, r := range m.rules {
		if !ids[r.id] {
			c.rules[k] = r
		}
	}
	return c
}

// encoder holds what one call of Encode reuses from word to word.
type encoder struct {
	model  *model
	merger merger
	tokens []int32
}

// word appends the ids of one word to out.
func (e *encoder) word(word string, out []int32) []int32 {
	m := e.model
	if m.ignoreMerges {
		if id, ok := m.raw[word]; ok {
			return append(out, id)
		}
	}
	if len(word) > maxCachedWord {
		return e.split(word, out)
	}
	m.mu.RLock()
	ids, ok := m.cache[word]
	m.mu.RUnlock()
	if ok {
		return append(out, ids...)
	}
	start := len(out)
	out = e.split(word, out)
	ids = append([]int32(nil), out[start:]...)
	m.mu.Lock()
	if len(m.cache) >= maxCached {
		clear(m.cache)
	}
	m.cache[strings.Clone(word)] = ids
	m.mu.Unlock()
	return out
}

// split tokenizes a word from its bytes up.
func (e *encoder) split(word string, out []int32) []int32 {
	e.tokens = e.tokens[:0]
	unknown := false
	for i := range len(word) {
		id := e.model.bytes[word[i]]
		if id < 0 {
			if e.model.unk >= 0 && !(unknown && e.model.fuseUnk) {
				e.tokens = append(e.tokens, e.model.unk)
			}
			unknown = true
			continue
		}
		unknown = false
		e.tokens = append(e.tokens, id)
	}
	return e.merger.merge(e.tokens, e.model.rules, out)
}
