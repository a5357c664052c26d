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

// Tokenizer is the tokenizer and the chat template of a model directory. It is safe for concurrent use.
type Tokenizer struct {
	*bpe.Tokenizer
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
	data, err := os.ReadFile(file)
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
	t := &Tokenizer{Tokenizer: core, names: map[string]string{}, path: file, now: time.Now}
	if dir == "" {
		return t, nil
	}
	if err := t.configure(dir); err != nil {
		return nil, err
	}
	return t, nil
}

// readJSON decodes a file of dir into v; found is false when there is no such file.
func readJSON(dir, name string, v any) (found bool, err error) {
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
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
	if special {
		return t.EncodeDocument(text)
	}
	return t.EncodeOrdinary(text)
}

// Vocabulary returns the bytes of every id below VocabSize; unused ids are nil.
func (t *Tokenizer) Vocabulary() [][]byte {
	all := make([][]byte, t.VocabSize())
	for id := range all {
		all[id] = t.TokenBytes(int32(id))
	}
	return all
}

// StopIDs are the ids that end a reply: eos_token_id of generation_config.json (of config.json where that says
// nothing), then the tokenizer's own eos_token.
func (t *Tokenizer) StopIDs() []int32 { return slices.Clone(t.stop) }
