package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
)

const (
	maxTokens     = 1 << 22 // ids a vocabulary may use: bounds the tables that a file can ask for
	maxCachedWord = 64      // bytes; longer words are rare and dear to keep
	maxCached     = 1 << 16 // words
)

// A byte-level vocabulary spells each byte as one printable character (GPT-2, Radford et al. 2019): printable Latin-1
// characters stand for themselves, the other 68 bytes for U+0100 and up, in order.
var (
	byteToRune [256]rune
	runeToByte = map[rune]byte{}
)

func init() {
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := '!' <= r && r <= '~' || 0xa1 <= r && r <= 0xac || 0xae <= r && r <= 0xff
		if !printable {
			r = next
			next++
		}
		byteToRune[b] = r
		runeToByte[r] = byte(b)
	}
}

// unspell returns the bytes that a token of such a vocabulary spells; ok is false when token has a character that
// stands for no byte.
func unspell(token string) (raw string, ok bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		b, known := runeToByte[r]
		if !known {
			return "", false
		}
		out = append(out, b)
	}
	return string(out), true
}

// model is the BPE model: it turns one word (raw bytes) into ids. Bytes that the vocabulary lacks are left out.
type model struct {
	vocab        map[string]int32 // spelled tokens, as in the file
	raw          map[string]int32 // tokens by the bytes they stand for
	rules        map[uint64]rule
	ignoreMerges bool // a word that is a token is that token, whatever the merges

	mu    sync.RWMutex
	cache map[string][]int32
}

// merge is a pair of tokens, spelled "a b" or ["a", "b"].
type merge [2]string

// UnmarshalJSON has the signature of json.Unmarshaler.
func (m *merge) UnmarshalJSON(data []byte) error {
	var parts []string
	var line string
	if json.Unmarshal(data, &line) == nil {
		parts = strings.Split(line, " ")
	} else if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	if len(parts) != 2 {
		return fmt.Errorf("merge %.60s, expected two tokens", data)
	}
	*m = merge(parts)
	return nil
}

func parseModel(data json.RawMessage) (*model, error) {
	var f struct {
		Type         string
		Vocab        map[string]int32
		Merges       []merge
		Dropout      float64
		UnkToken     string `json:"unk_token"`
		Prefix       string `json:"continuing_subword_prefix"`
		Suffix       string `json:"end_of_word_suffix"`
		ByteFallback bool   `json:"byte_fallback"`
		IgnoreMerges bool   `json:"ignore_merges"`
	}
	if len(data) == 0 || string(data) == "null" {
		return nil, errors.New("model is missing")
	}
	err := json.Unmarshal(data, &f)
	switch {
	case f.Type != "BPE" && f.Type != "":
		return nil, fmt.Errorf("model %q is not supported: expected BPE (byte-level)", f.Type)
	case err != nil:
		return nil, fmt.Errorf("model: %w", err)
	case f.Dropout != 0:
		return nil, fmt.Errorf("model.dropout is %v: ids would be random, expected null", f.Dropout)
	case f.ByteFallback:
		return nil, errors.New("model.byte_fallback is set: SentencePiece-style BPE is not supported, expected " +
			"byte-level BPE")
	case f.Prefix != "":
		return nil, fmt.Errorf("model.continuing_subword_prefix is %q, expected none", f.Prefix)
	case f.Suffix != "":
		return nil, fmt.Errorf("model.end_of_word_suffix is %q, expected none", f.Suffix)
	}
	m := &model{vocab: f.Vocab, ignoreMerges: f.IgnoreMerges, cache: map[string][]int32{}}
	if err := m.build(f.Merges); err != nil {
		return nil, err
	}
	for b := range 256 {
		if _, ok := m.raw[string([]byte{byte(b)})]; !ok && f.UnkToken != "" {
			return nil, fmt.Errorf("model.vocab lacks the byte %d, for which model.unk_token %q would stand: expected "+
				"every byte", b, f.UnkToken)
		}
	}
	return m, nil
}

// build makes the tables from the vocabulary and its merges.
func (m *model) build(merges []merge) error {
	m.raw = make(map[string]int32, len(m.vocab))
	for token, id := range m.vocab {
		if id < 0 || id >= maxTokens {
			return fmt.Errorf("model.vocab gives token %q the id %d, expected 0 to %d", token, id, maxTokens-1)
		}
		if raw, ok := unspell(token); ok {
			m.raw[raw] = id
		}
	}
	m.rules = make(map[uint64]rule, len(merges))
	for rank, p := range merges {
		a, okA := m.vocab[p[0]]
		b, okB := m.vocab[p[1]]
		joined, okJ := m.vocab[p[0]+p[1]]
		if !okA || !okB || !okJ {
			return fmt.Errorf("model.merges[%d] joins %q and %q, but not all of them and their union are in model.vocab",
				rank, p[0], p[1])
		}
		m.rules[pairKey(a, b)] = rule{int32(rank), joined}
	}
	return nil
}

// without returns a model that never produces the given ids.
func (m *model) without(ids map[int32]bool) *model {
	c := &model{vocab: m.vocab, raw: maps.Clone(m.raw), rules: maps.Clone(m.rules), ignoreMerges: m.ignoreMerges,
		cache: map[string][]int32{}}
	maps.DeleteFunc(c.raw, func(_ string, id int32) bool { return ids[id] })
	maps.DeleteFunc(c.rules, func(_ uint64, r rule) bool { return ids[r.id] })
	return c
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
		return e.merge(word, out)
	}
	m.mu.RLock()
	ids, ok := m.cache[word]
	m.mu.RUnlock()
	if ok {
		return append(out, ids...)
	}
	ids = e.merge(word, nil)
	m.mu.Lock()
	if len(m.cache) >= maxCached {
		clear(m.cache)
	}
	m.cache[strings.Clone(word)] = ids
	m.mu.Unlock()
	return append(out, ids...)
}
