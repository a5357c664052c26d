package bpe

import (
	"bytes"
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
	metaspace     = "▁"     // U+2581, a space in vocabularies that SentencePiece made
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

// model turns one word into ids, by BPE or (where there are scores) by Unigram. The word of a byte-level model is raw
// bytes, that of another is characters. What the vocabulary lacks becomes byte tokens, the unknown token, or nothing.
type model struct {
	vocab        map[string]int32 // spelled tokens, as in the file
	raw          map[string]int32 // tokens by the text they stand for
	rules        map[uint64]rule
	byteLevel    bool
	ignoreMerges bool       // a word that is a token is that token, whatever the merges
	bytes        [256]int32 // the tokens <0x00> to <0xFF>; -1: none
	unk          int32      // -1: none
	fuse         bool       // neighbouring unknown characters are one token
	apart        bool       // no token goes on with a metaspace after another character
	scores       []float64  // of a Unigram model, by id
	least        float64    // of these
	longest      int        // bytes of its longest token

	mu    sync.RWMutex // guards cache
	cache map[string][]token
}

// token is an id with the number of bytes of the word that it stands for.
type token struct{ id, width int32 }

// modelFile is the model of a tokenizer.json.
type modelFile struct {
	Type         string
	Vocab        json.RawMessage
	Merges       json.RawMessage
	Dropout      float64
	UnkToken     *string `json:"unk_token"`
	UnkID        *int32  `json:"unk_id"`
	Prefix       string  `json:"continuing_subword_prefix"`
	Suffix       string  `json:"end_of_word_suffix"`
	FuseUnk      bool    `json:"fuse_unk"`
	ByteFallback bool    `json:"byte_fallback"`
	IgnoreMerges bool    `json:"ignore_merges"`
}

func parseModel(data json.RawMessage, byteLevel bool) (*model, error) {
	var f modelFile
	if len(data) == 0 || string(data) == "null" {
		return nil, errors.New("model is missing")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&f)
	unigram := f.Type == "Unigram"
	switch {
	case f.Type != "BPE" && f.Type != "" && !unigram:
		return nil, fmt.Errorf("model %q is not supported: expected BPE or Unigram", f.Type)
	case err != nil:
		return nil, fmt.Errorf("model: %w", err)
	case f.Dropout != 0:
		return nil, fmt.Errorf("model.dropout is %v: ids would be random, expected null", f.Dropout)
	case f.Prefix != "":
		return nil, fmt.Errorf("model.continuing_subword_prefix is %q, expected none", f.Prefix)
	case f.Suffix != "":
		return nil, fmt.Errorf("model.end_of_word_suffix is %q, expected none", f.Suffix)
	case unigram && byteLevel:
		return nil, errors.New("model Unigram is not supported with a byte-level pre_tokenizer: expected BPE")
	}
	m := &model{byteLevel: byteLevel, ignoreMerges: f.IgnoreMerges, unk: -1, cache: map[string][]token{}}
	if unigram {
		err = m.readUnigram(f)
	} else {
		err = m.readBPE(f)
	}
	if err != nil {
		return nil, err
	}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := m.vocab[fmt.Sprintf("<0x%02X>", b)]; ok && f.ByteFallback {
			m.bytes[b] = id
		}
	}
	return m, nil
}

func (m *model) readBPE(f modelFile) error {
	if err := json.Unmarshal(f.Vocab, &m.vocab); err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	m.fuse = f.FuseUnk
	if f.UnkToken != nil {
		id, ok := m.vocab[*f.UnkToken]
		if !ok {
			return fmt.Errorf("model.unk_token is %q, which model.vocab lacks", *f.UnkToken)
		}
		m.unk = id
	}
	merges, err := parseMerges(f.Merges)
	if err != nil {
		return err
	}
	if err := m.index(); err != nil {
		return err
	}
	return m.build(merges)
}

// parseMerges takes both spellings of pairs: "a b" and ["a", "b"].
func parseMerges(data json.RawMessage) ([][]string, error) {
	var pairs [][]string
	var lines []string
	var into any = &lines
	if open, _, _ := bytes.Cut(data, []byte(`"`)); bytes.Count(open, []byte("[")) == 2 {
		into = &pairs
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("model.merges: %w", err)
	}
	for _, line := range lines {
		pairs = append(pairs, strings.Split(line, " "))
	}
	return pairs, nil
}

// index makes the table of tokens by what they stand for.
func (m *model) index() error {
	m.raw = m.vocab
	if m.byteLevel {
		m.raw = make(map[string]int32, len(m.vocab))
	}
	for token, id := range m.vocab {
		if id < 0 || id >= maxTokens {
			return fmt.Errorf("model.vocab gives token %q the id %d, expected 0 to %d", token, id, maxTokens-1)
		}
		if m.byteLevel {
			if raw, ok := unspell(token); ok {
				m.raw[raw] = id
			}
		}
	}
	return nil
}

// build makes the table of rules.
func (m *model) build(merges [][]string) error {
	_, known := m.raw[metaspace]
	m.apart = !m.byteLevel && !m.ignoreMerges && known
	m.rules = make(map[uint64]rule, len(merges))
	for rank, p := range merges {
		if len(p) != 2 {
			return fmt.Errorf("model.merges[%d] is %q, expected two tokens", rank, p)
		}
		a, okA := m.vocab[p[0]]
		b, okB := m.vocab[p[1]]
		joined, okJ := m.vocab[p[0]+p[1]]
		if !okA || !okB || !okJ {
			return fmt.Errorf("model.merges[%d] joins %q and %q, but not all of them and their union are in "+
				"model.vocab", rank, p[0], p[1])
		}
		m.rules[pairKey(a, b)] = rule{int32(rank), joined}
		if m.apart && strings.HasPrefix(p[1], metaspace) && !strings.HasSuffix(p[0], metaspace) {
			m.apart = false
		}
	}
	return nil
}

// without returns a model that never produces the given ids.
func (m *model) without(ids map[int32]bool) *model {
	c := &model{vocab: m.vocab, raw: m.raw, rules: m.rules, byteLevel: m.byteLevel, ignoreMerges: m.ignoreMerges,
		bytes: m.bytes, unk: m.unk, fuse: m.fuse, apart: m.apart, scores: m.scores, least: m.least,
		longest: m.longest, cache: map[string][]token{}}
	c.raw = maps.Clone(m.raw)
	maps.DeleteFunc(c.raw, func(_ string, id int32) bool { return ids[id] })
	for _, r := range m.rules {
		if ids[r.id] { // rare: big tables are shared where they can be
			c.rules = maps.Clone(m.rules)
			maps.DeleteFunc(c.rules, func(_ uint64, r rule) bool { return ids[r.id] })
			break
		}
	}
	return c
}

// text appends the tokens of a text that no pre-tokenizer splits further. Where no token goes on with a metaspace after
// another character, the words between them are encoded one by one, as that gives the same tokens.
func (e *encoder) text(s string, out []token) []token {
	for e.model.apart {
		inner := len(s) - len(strings.TrimLeft(s, metaspace))
		n := strings.Index(s[inner:], metaspace)
		if n < 0 {
			break
		}
		out = e.word(s[:inner+n], out)
		s = s[inner+n:]
	}
	return e.word(s, out)
}

// word appends the tokens of one word to out.
func (e *encoder) word(word string, out []token) []token {
	m := e.model
	if m.ignoreMerges {
		if id, ok := m.raw[word]; ok {
			return append(out, token{id, int32(len(word))})
		}
	}
	if len(word) > maxCachedWord {
		return e.encode(word, out)
	}
	m.mu.RLock()
	tokens, ok := m.cache[word]
	m.mu.RUnlock()
	if ok {
		return append(out, tokens...)
	}
	tokens = e.encode(word, nil)
	m.mu.Lock()
	if len(m.cache) >= maxCached {
		clear(m.cache)
	}
	m.cache[strings.Clone(word)] = tokens
	m.mu.Unlock()
	return append(out, tokens...)
}

func (e *encoder) encode(word string, out []token) []token {
	if e.model.scores != nil {
		return e.bestPath(word, out)
	}
	return e.merge(word, out)
}

// fallback appends the byte tokens of a character if the vocabulary has all of them.
func (m *model) fallback(char string, out []token) ([]token, bool) {
	for _, b := range []byte(char) {
		if m.bytes[b] < 0 {
			return out, false
		}
	}
	for _, b := range []byte(char) {
		out = append(out, token{m.bytes[b], 1})
	}
	return out, true
}
