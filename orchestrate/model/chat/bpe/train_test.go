package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

var sentences = []string{"low low low low low lower lower newest newest newest newest newest newest widest widest " +
	"widest\n",
	"<|im_start|>user\nnew naïve 123 é\n", "a b c <|im_end|>"}

func TestTrain(t *testing.T) {
	specials := []string{"<|endoftext|>", "<|im_end|>"}
	data, err := Train(sentences, 300, specials)
	if err != nil {
		t.Fatal(err)
	}
	reversed := slices.Clone(sentences)
	slices.Reverse(reversed)
	if again, _ := Train(reversed, 300, specials); !bytes.Equal(data, again) {
		t.Error("another order of the texts gave another tokenizer")
	}
	tok, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range specials {
		if id, ok := tok.ID(s); !ok || int(id) != i || !tok.Special(id) {
			t.Errorf("%s has id %d (known: %v, special: %v), want %d", s, id, ok, tok.Special(id), i)
		}
	}
	for _, s := range append([]string{"unseen: \x00 ω 😀 newest", "new <|im_end|> low"}, sentences...) {
		ids, _ := tok.EncodeOrdinary(s)
		if got := tok.Decode(ids, false); got != s || slices.ContainsFunc(ids, tok.Special) {
			t.Errorf("%q comes back as %q from %v", s, got, ids)
		}
	}
	if ids, _ := tok.EncodeOrdinary(" newest"); len(ids) != 1 {
		t.Errorf("the most frequent word has %d tokens, want 1", len(ids))
	}
}

// The first merges are those of the definition: the most frequent pair, of equals the smaller ids.
func TestTrainMergesByFrequency(t *testing.T) {
	data, err := Train([]string{"abab abab cdcd ab"}, 259, nil)
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ Model struct{ Merges []string } }
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	// ab: 5, Ġa: 2 and cd: 2 and abab: 2; then Ġ + ab and ab + ab tie at 2, and Ġ (byte 32) is the smaller id.
	if got, want := fmt.Sprintf("%q", f.Model.Merges), `["a b" "Ġ ab" "c d"]`; got != want {
		t.Errorf("merges are %s, want %s", got, want)
	}
}

func TestTrainCannotSpellSpecials(t *testing.T) {
	data, err := Train([]string{strings.Repeat("stop ", 50)}, 400, []string{"stop"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if ids, _ := tok.EncodeOrdinary("stop"); slices.ContainsFunc(ids, tok.Special) {
		t.Errorf("text spells the special token: %v", ids)
	}
	if n := tok.VocabSize(); n >= 400 || n < 257 {
		t.Errorf("vocabulary of %d tokens from one word, want fewer than asked for", n)
	}
}

func TestTrainRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		size     int
		specials []string
	}{
		"vocabulary size is 256, expected 257": {256, []string{"<s>"}},
		"different, non-empty":                 {300, []string{"<s>", "<s>"}},
		"appears twice":                        {300, []string{"a"}},
	} {
		if _, err := Train(sentences, c.size, c.specials); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
