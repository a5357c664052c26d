// Package bpe reads, runs and trains byte-level BPE tokenizers in Hugging Face's tokenizer.json format.
//
// It gives the ids of the Rust crate "tokenizers" for the pipelines it knows: a Unicode normal form (or none), the
// pre-tokenizers ByteLevel, Digits, and Split with the patterns of GPT-2, Qwen2 and Llama 3, a BPE model, and
// post-processors that put fixed tokens around a text. Every other pipeline (SentencePiece's Metaspace, Unigram,
// WordPiece, unknown patterns, byte fallback, dropout) is refused at load time with an error that names it: a tokenizer
// that is nearly right silently trains on the wrong ids. Letters and numbers are those of Go's Unicode version: scripts
// that are younger are split as symbols are.
//
// Cost: encoding takes O(n log n) time and O(n) memory in the length of the text, whatever the text. A Tokenizer is
// safe for concurrent use.
package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// MaxText is the longest text in bytes that can be encoded in one call.
const MaxText = 1 << 28

// Tokenizer is a loaded tokenizer.json.
type Tokenizer struct {
	forms    []form
	stages   []stage
	model    *model // of the file
	ordinary *model // never produces a special token
	around   surround
	added    []AddedToken
	markup   *recogniser // every added token
	spaces   *recogniser // only added tokens of white space, which cannot forge markup
	pieces   []piece     // by id
	ids      map[string]int32
}

// piece is what an id stands for.
type piece struct {
	bytes   []byte // nil: the id is unused
	special bool
}

// Parse reads a tokenizer.json. A pipeline it does not know is refused with an error that names the part.
func Parse(data []byte) (*Tokenizer, error) {
	var f struct {
		Normalizer    *component
		PreTokenizer  *component `json:"pre_tokenizer"`
		Model         json.RawMessage
		PostProcessor *component `json:"post_processor"`
		Decoder       *component
		AddedTokens   []AddedToken `json:"added_tokens"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("not a tokenizer.json: %w", err)
	}
	t := &Tokenizer{}
	var problems [6]error
	// The pipeline comes first: for a tokenizer of another kind it gives the clearer error.
	t.model, problems[0] = parseModel(f.Model)
	t.forms, problems[1] = parseNormalizer(f.Normalizer)
	t.stages, problems[2] = parsePreTokenizer(f.PreTokenizer)
	problems[3] = checkDecoder(f.Decoder)
	t.around, problems[4] = parsePostProcessor(f.PostProcessor)
	if t.model != nil {
		problems[5] = t.setAdded(f.AddedTokens)
	}
	if err := errors.Join(problems[:]...); err != nil {
		return nil, err
	}
	return t, t.around.check(len(t.pieces))
}

// setAdded replaces the added tokens and rebuilds what depends on them.
func (t *Tokenizer) setAdded(added []AddedToken) error {
	size := int32(0)
	for _, id := range t.model.vocab {
		size = max(size, id+1)
	}
	for _, a := range added {
		id, inVocab := t.model.vocab[a.Content]
		switch {
		case inVocab && id != a.ID:
			return fmt.Errorf("added token %q has id %d, but %d in model.vocab", a.Content, a.ID, id)
		case a.ID < 0 || a.ID >= maxTokens:
			return fmt.Errorf("added token %q has id %d, expected 0 to %d", a.Content, a.ID, maxTokens-1)
		}
		size = max(size, a.ID+1)
	}
	t.added = slices.DeleteFunc(slices.Clone(added), func(a AddedToken) bool { return a.Content == "" })
	t.pieces = make([]piece, size)
	t.ids = make(map[string]int32, len(t.model.vocab)+len(added))
	for token, id := range t.model.vocab {
		t.pieces[id] = piece{bytes: tokenBytes(token)}
		t.ids[token] = id
	}
	specials := map[int32]bool{}
	var blank []AddedToken
	for _, a := range t.added {
		shown := a.Content
		if a.Normalized {
			shown = normalize(t.forms, shown)
		}
		t.pieces[a.ID] = piece{bytes: tokenBytes(shown), special: a.Special}
		t.ids[a.Content] = a.ID
		if a.Special {
			specials[a.ID] = true
		} else if strings.TrimFunc(a.Content, unicode.IsSpace) == "" {
			blank = append(blank, a)
		}
	}
	t.markup, t.spaces = newRecogniser(t.added, t.forms), newRecogniser(blank, t.forms)
	t.ordinary = t.model.without(specials)
	return nil
}

// Add makes content an added token if it is none yet, with its id in the vocabulary or else the next free id, and marks
// it special if asked. It must not be called while the tokenizer is in use.
func (t *Tokenizer) Add(a AddedToken) error {
	for i, have := range t.added {
		if have.Content == a.Content {
			if !a.Special || have.Special {
				return nil
			}
			added := slices.Clone(t.added)
			added[i].Special = true
			return t.setAdded(added)
		}
	}
	if id, ok := t.model.vocab[a.Content]; ok {
		a.ID = id
	} else {
		a.ID = int32(len(t.pieces))
	}
	return t.setAdded(append(slices.Clone(t.added), a))
}

// EncodeOrdinary encodes text in which nothing is markup: the spelling of a special or other added token is text like
// any other, and no special token can come out. (Added tokens of white space only are the exception: they are how some
// vocabularies write indentation.)
func (t *Tokenizer) EncodeOrdinary(text string) ([]int32, error) {
	ids, _, err := t.EncodeSegments([]Segment{{Text: text, Ordinary: true}})
	return ids, err
}

// EncodeMarkup encodes text in which added tokens are recognised, without the post-processor's tokens. It must only see
// text that the program or its user wrote.
func (t *Tokenizer) EncodeMarkup(text string) ([]int32, error) {
	ids, _, err := t.EncodeSegments([]Segment{{Text: text}})
	return ids, err
}

// Surround puts the tokens around ids that the post-processor adds (a BOS, for instance).
func (t *Tokenizer) Surround(ids []int32) []int32 {
	return slices.Concat(t.around.prefix, ids, t.around.suffix)
}

// ID returns the id of a token as the file spells it.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// VocabSize is one more than the largest id.
func (t *Tokenizer) VocabSize() int { return len(t.pieces) }

// Special reports whether id is a special token.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.pieces) && t.pieces[id].special
}

// tokenBytes returns the bytes that a token stands for: an added token with a character outside the byte-level alphabet
// stands for its own UTF-8.
func tokenBytes(token string) []byte {
	if raw, ok := unspell(token); ok {
		return []byte(raw)
	}
	return []byte(token)
}

// TokenBytes returns the bytes of one id, nil for an id that is not in the vocabulary. The caller must not change them.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id].bytes
}

// Decode joins the bytes of ids and replaces ill-formed UTF-8 by U+FFFD. Unknown ids, and with skipSpecial the special
// tokens, are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var out []byte
	for _, id := range ids {
		if !(skipSpecial && t.Special(id)) {
			out = append(out, t.TokenBytes(id)...)
		}
	}
	return ToValidUTF8(string(out))
}
