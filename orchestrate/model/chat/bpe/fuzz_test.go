package bpe

import (
	"os"
	"slices"
	"testing"
	"unicode/utf8"
)

// No text makes a tokenizer panic, and ordinary text comes back as it was (in NFC) without a special token.
func FuzzEncode(f *testing.F) {
	var tokenizers []*Tokenizer
	for _, name := range styles {
		tokenizers = append(tokenizers, load(f, name))
	}
	for _, r := range references(f)[:60] {
		f.Add(r.Text, 3)
	}
	f.Fuzz(func(t *testing.T, text string, cut int) {
		for _, tok := range tokenizers {
			if _, err := tok.EncodeMarkup(text); err != nil {
				t.Fatal(err)
			}
			ids, err := tok.EncodeOrdinary(text)
			if err != nil || slices.ContainsFunc(ids, tok.markup) {
				t.Fatalf("%q: %v, %v", text, ids, err)
			}
			cut = max(0, min(cut, len(text)))
			if _, from, err := tok.EncodeSegments([]Segment{{text[:cut], true}, {text[cut:], false}}, false); err != nil ||
				!slices.IsSorted(from) {
				t.Fatalf("%q cut at %d: %v, %v", text, cut, from, err)
			}
		}
		ids, _ := tokenizers[1].EncodeOrdinary(text)
		if got, want := tokenizers[1].Decode(ids, false), forms["NFC"].apply(ToValidUTF8(text)); got != want {
			t.Fatalf("%q comes back as %q", want, got)
		}
	})
}

// No file makes Parse panic, and what it accepts can encode and decode.
func FuzzParse(f *testing.F) {
	for _, name := range styles {
		data, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 3000)])
	}
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},` +
		`"added_tokens":[{"id":3,"content":" x","lstrip":true,"rstrip":true,"single_word":true,"normalized":true}],"normalizer":{"type":"NFKC"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		ids, err := tok.EncodeDocument("ab  x a\u0301bab x")
		if err != nil {
			t.Fatal(err)
		}
		if text := tok.Decode(ids, false); !utf8.ValidString(text) {
			t.Fatalf("decoded to invalid UTF-8: %q", text)
		}
	})
}
