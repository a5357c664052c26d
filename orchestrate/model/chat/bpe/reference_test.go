package bpe

import (
	"bufio"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// reference is one row of testdata/cases.jsonl: what Hugging Face's tokenizers makes of a text
// (scripts/fixtures_tokenizer.py).
type reference struct {
	Tokenizer, Text    string
	Markup, IDs, Noise []int32
	// Decoded is IDs as text, Skipped without special tokens; Noisy is any ids without special tokens.
	Decoded, Skipped, Noisy string
}

// fixtures is where the references lie: GYRE_TOKENIZERS has more strings, and tokenizers that are not ours to keep.
func fixtures() string { return cmp.Or(os.Getenv("GYRE_TOKENIZERS"), "testdata") }

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(fixtures(), name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func references(t testing.TB) []reference {
	t.Helper()
	f, err := os.Open(filepath.Join(fixtures(), "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []reference
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		var r reference
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, r)
	}
	if len(rows) < 300 {
		t.Fatalf("only %d reference rows", len(rows))
	}
	return rows
}

var styles = []string{"gpt2", "qwen2", "llama3", "smollm", "llama2", "mistral", "gemma", "tekken", "o200k", "several", "marks",
	"neox", "unigram", "parts"}

func TestMatchesHuggingFace(t *testing.T) {
	tokenizers := map[string]*Tokenizer{}
	for _, r := range references(t) {
		if tokenizers[r.Tokenizer] == nil {
			tokenizers[r.Tokenizer] = load(t, r.Tokenizer)
		}
		tok := tokenizers[r.Tokenizer]
		got, err := tok.EncodeMarkup(r.Text)
		if err != nil || !slices.Equal(got, r.Markup) {
			t.Errorf("%s: %+q: got %v, %v, want %v", r.Tokenizer, r.Text, got, err, r.Markup)
		}
		around, err := tok.EncodeDocument(r.Text)
		if err != nil || !slices.Equal(around, r.IDs) {
			t.Errorf("%s: %+q: with the post-processor %v, want %v", r.Tokenizer, r.Text, around, r.IDs)
		}
		if d := tok.Decode(r.IDs, false); d != r.Decoded {
			t.Errorf("%s: decoding %v: got %+q, want %+q", r.Tokenizer, r.IDs, d, r.Decoded)
		}
		if d := tok.Decode(r.IDs, true); d != r.Skipped {
			t.Errorf("%s: decoding %v without special tokens: got %+q, want %+q", r.Tokenizer, r.IDs, d, r.Skipped)
		}
		if d := tok.Decode(r.Noise, true); d != r.Noisy {
			t.Errorf("%s: decoding %v: got %+q, want %+q", r.Tokenizer, r.Noise, d, r.Noisy)
		}
		whole, _, err := tok.EncodeSegments([]Segment{{Text: r.Text}}, false)
		if err != nil || !slices.Equal(whole, r.Markup) {
			t.Errorf("%s: %+q as one segment: got %v, %v, want %v", r.Tokenizer, r.Text, whole, err, r.Markup)
		}
	}
}

// markup says that an id is a special token that stands for itself, not for what the vocabulary lacks.
func (t *Tokenizer) markup(id int32) bool { return t.Special(id) && id != t.model.unk }

// Whatever the text spells, ordinary text has no special token.
func TestOrdinaryNeverSpecial(t *testing.T) {
	for _, name := range styles {
		tok := load(t, name)
		for _, r := range references(t) {
			ids, err := tok.EncodeOrdinary(r.Text)
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(ids, tok.markup); i >= 0 {
				t.Errorf("%s: ordinary text %+q became special token %d", name, r.Text, ids[i])
			}
			if name == "qwen2" { // NFC and whole bytes: decoding gives the text back
				if got, want := tok.Decode(ids, false), forms["NFC"].apply(r.Text); got != want {
					t.Errorf("ordinary text %+q decodes to %+q", want, got)
				}
			}
		}
	}
}
