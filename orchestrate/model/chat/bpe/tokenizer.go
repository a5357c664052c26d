// Package bpe reads and runs tokenizers in Hugging Face's tokenizer.json format, and trains byte-level BPE ones.
//
// It gives the ids and the text of the Rust crate "tokenizers" for the pipelines it knows: byte-level BPE, BPE as
// SentencePiece makes it (metaspaces, byte fallback), and Unigram, with the normalizers, pre-tokenizers, decoders and
// post-processors that decoders' tokenizers are made of. Whatever else a file asks for (WordPiece, Precompiled, a
// dropout, a pattern with lookbehind, an unknown key) is refused at load time with an error that names it: a tokenizer
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
)

// MaxText is the longest text in bytes that can be encoded in one call.
const MaxText = 1 << 28

// Tokenizer is a loaded tokenizer.json.
type Tokenizer struct {
	normalizers []normalizer
	stages      []stage
	model       *model // of the file
	ordinary    *model // never produces a special token
	around      surround
	decoder     decoder
	added       []AddedToken
	plain       matcher // added tokens that are searched as they are
	normalized  matcher // the others, searched in the normalized rest
	pieces      []piece // by id
	ids         map[string]int32
}

// piece is what an id stands for.
type piece struct {
	spelled string
	bytes   []byte // nil: the id is unused
	single  bool   // a byte of a character
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
	var byteLevel bool
	t.stages, byteLevel, problems[2] = parsePreTokenizer(f.PreTokenizer)
	// The pipeline comes first: for a tokenizer of another kind it gives the clearer error.
	t.model, problems[0] = parseModel(f.Model, byteLevel)
	t.normalizers, problems[1] = parseNormalizer(f.Normalizer)
	t.decoder, problems[3] = parseDecoder(f.Decoder)
	t.around, problems[4] = parsePostProcessor(f.PostProcessor)
	if problems[0] == nil && problems[2] == nil && byteLevel != t.decoder.byteLevel && problems[3] == nil {
		problems[3] = errors.New("decoder and pre_tokenizer are not both ByteLevel: expected both or neither")
	}
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
	piece := func(spelled string) piece {
		p := piece{spelled: spelled}
		p.bytes, p.single = t.decoder.text(spelled, false)
		return p
	}
	for token, id := range t.model.vocab {
		t.pieces[id] = piece(token)
		t.ids[token] = id
	}
	specials := map[int32]bool{}
	t.plain, t.normalized = newMatcher(), newMatcher()
	for _, a := range t.added {
		shown, m := a.Content, t.plain
		if a.Normalized {
			shown, m = normalize(t.normalizers, shown, true, true), t.normalized
		}
		m.add(a, shown)
		t.pieces[a.ID] = piece(shown)
		t.pieces[a.ID].special = a.Special
		t.ids[a.Content] = a.ID
		specials[a.ID] = a.Special && a.ID != t.model.unk // which stands for what the vocabulary lacks
	}
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
// vocabularies write indentation.) The only error is a text longer than MaxText.
func (t *Tokenizer) EncodeOrdinary(text string) ([]int32, error) {
	ids, _, err := t.EncodeSegments([]Segment{{Text: text, Ordinary: true}}, false)
	return ids, err
}

// EncodeMarkup encodes text in which added tokens are recognised, without the post-processor's tokens. It must only see
// text that the program or its user wrote.
func (t *Tokenizer) EncodeMarkup(text string) ([]int32, error) {
	ids, _, err := t.EncodeSegments([]Segment{{Text: text}}, false)
	return ids, err
}

// EncodeDocument is EncodeMarkup with the tokens around it that the post-processor adds (a BOS, for instance), which
// gives the ids of transformers' tokenizer(text).
func (t *Tokenizer) EncodeDocument(text string) ([]int32, error) {
	ids, err := t.EncodeMarkup(text)
	return slices.Concat(t.around.prefix, ids, t.around.suffix), err
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

// TokenBytes returns the bytes of one id within a text, nil for an id that is not in the vocabulary. The caller must
// not change them.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id].bytes
}

// Decode joins the bytes of ids and replaces ill-formed UTF-8 by U+FFFD. Unknown ids, and with skipSpecial the special
// tokens, are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return Join(t.Stream(skipSpecial), ids)
}

// Join is the text that a stream gives of ids; ill-formed UTF-8 is replaced by U+FFFD.
func Join(stream Stream, ids []int32) string {
	var out []byte
	for _, id := range ids {
		out = append(out, stream.Add(id)...)
	}
	return ToValidUTF8(string(append(out, stream.Finish()...)))
}
