package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gyre/internal/dataset"
	"gyre/orchestrate/model/chat/bpe"
)

// CountTokens opens the tokenizer and the chat template of a model directory, and gives a function that counts the
// tokens of a prompt, the generation prompt included.
func CountTokens(dir string) (func([]dataset.Message) (int, error), error) {
	tokenizer, err := Load(dir)
	return func(prompt []dataset.Message) (int, error) {
		messages := make([]Message, len(prompt))
		for i, m := range prompt {
			messages[i] = Message{Role: m.Role, Content: m.Content}
		}
		ids, err := tokenizer.EncodeMessages(messages, true)
		return len(ids), err
	}, err
}

// maxFile bounds the size in bytes of the files that are read.
const maxFile = 1 << 28

// Tokenizer is the tokenizer and the chat template of a model directory. It is safe for concurrent use.
type Tokenizer struct {
	core     *bpe.Tokenizer
	stop     []int32
	names    map[string]string // bos_token, eos_token, …: what templates see
	template *template         // nil: the directory has none
	path     string
	now      func() time.Time
}

// Load reads the tokenizer of a model directory, or a single tokenizer.json.
func Load(path string) (*Tokenizer, error) {
	dir, file := path, filepath.Join(path, "tokenizer.json")
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		dir, file = "", path
	}
	data, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist: expected the tokenizer.json of a Hugging Face model directory "+
			"(where there is only vocab.json or tokenizer.model, save the tokenizer again with transformers' "+
			"AutoTokenizer)", file)
	}
	if err != nil {
		return nil, err
	}
	core, err := bpe.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	t := &Tokenizer{core: core, names: map[string]string{}, path: file, now: time.Now}
	if dir == "" {
		return t, nil
	}
	if err := t.configure(dir); err != nil {
		return nil, err
	}
	return t, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are supported", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

// readJSON decodes a file of dir into v; found is false when there is no such file.
func readJSON(dir, name string, v any) (found bool, err error) {
	path := filepath.Join(dir, name)
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		if err = json.Unmarshal(data, v); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return true, err
}

// Encode tokenizes text. With special, it gives the ids of transformers' tokenizer(text): added tokens in the text are
// recognised, and the post-processor's tokens (a BOS, say) are put around it. Without, everything in the text is
// ordinary text and nothing is put around it. The only error is a text longer than bpe.MaxText.
func (t *Tokenizer) Encode(text string, special bool) ([]int32, error) {
	if !special {
		return t.core.EncodeOrdinary(text)
	}
	ids, err := t.core.EncodeMarkup(text)
	if err != nil {
		return nil, err
	}
	return t.core.Surround(ids), nil
}

// EncodeMarkup tokenizes text in which added tokens are recognised and puts nothing around it: what a chat template
// rendered.
func (t *Tokenizer) EncodeMarkup(text string) ([]int32, error) { return t.core.EncodeMarkup(text) }

// Decode joins the text of ids, with U+FFFD for ill-formed UTF-8, and without special tokens if skipSpecial is set. It
// never "cleans up" spaces (transformers' clean_up_tokenization_spaces), which would lose text.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	return t.core.Decode(ids, skipSpecial)
}

// TokenBytes returns the bytes of one id, nil for an unknown one. The caller must not change them.
func (t *Tokenizer) TokenBytes(id int32) []byte { return t.core.TokenBytes(id) }

// Vocabulary returns the bytes of every id below VocabSize; unused ids are nil.
func (t *Tokenizer) Vocabulary() [][]byte {
	all := make([][]byte, t.VocabSize())
	for id := range all {
		all[id] = t.TokenBytes(int32(id))
	}
	return all
}

// VocabSize is one more than the largest id. A model's own vocabulary may be larger (padding), never smaller.
func (t *Tokenizer) VocabSize() int { return t.core.VocabSize() }

// ID returns the id of a token by its spelling in tokenizer.json.
func (t *Tokenizer) ID(token string) (int32, bool) { return t.core.ID(token) }

// Special reports whether id is a special token.
func (t *Tokenizer) Special(id int32) bool { return t.core.Special(id) }

// StopIDs are the ids that end a reply: eos_token_id of generation_config.json (of config.json where that says
// nothing), then the tokenizer's own eos_token.
func (t *Tokenizer) StopIDs() []int32 { return slices.Clone(t.stop) }
