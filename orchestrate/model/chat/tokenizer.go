package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gyre/internal/dataset"
	"gyre/internal/regular"
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
	replies  replyReading
	Path     string // of its file
	now      func() time.Time
}

// Load reads the tokenizer of a model directory, or a single tokenizer.json.
func Load(path string) (*Tokenizer, error) {
	dir, file := path, filepath.Join(path, "tokenizer.json")
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		dir, file = "", path
	}
	data, err := regular.Read(file)
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
	t := &Tokenizer{Tokenizer: core, names: map[string]string{}, Path: file, now: time.Now}
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
	data, err := regular.Read(path)
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

// said are the ids of a reply that say something: beside a chat template special tokens that delimit, such as those
// around calls, do. Those that end a reply or have another role in tokenizer_config.json do not.
type said struct {
	bpe.Stream
	t *Tokenizer
}

// Add has the signature of Stream.
func (s said) Add(id int32) []byte {
	named := func(name string) bool { return s.t.names[name] == string(s.t.TokenBytes(id)) }
	if s.t.Special(id) && (s.t.template == nil || slices.Contains(s.t.stop, id) ||
		slices.ContainsFunc(namedTokens, named)) {
		return nil
	}
	return s.Stream.Add(id)
}

// Stream starts the text of a reply, without tokens that say nothing if skipSpecial is set.
func (t *Tokenizer) Stream(skipSpecial bool) bpe.Stream {
	if !skipSpecial {
		return t.Tokenizer.Stream(false)
	}
	return said{t.Tokenizer.Stream(false), t}
}

// Said is the text of a reply, without tokens that say nothing.
func (t *Tokenizer) Said(ids []int32) string { return bpe.Join(t.Stream(true), ids) }

// namedTokens are the special tokens that tokenizer_config.json gives roles to.
var namedTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// token is a special token as tokenizer_config.json writes it: a string, an object with content, or null.
type token struct{ content string }

func (t *token) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &t.content); err == nil {
		return nil
	}
	var object struct{ Content string }
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("expected a token as a string or an object with \"content\", got %.60s", data)
	}
	t.content = object.Content
	return nil
}

// configure reads what a model directory says beyond tokenizer.json. What is put around a text is not in it: beside a
// tokenizer.json, transformers ignores add_bos_token and add_eos_token, and the post-processor decides.
func (t *Tokenizer) configure(dir string) error {
	var c map[string]json.RawMessage
	if _, err := readJSON(dir, "tokenizer_config.json", &c); err != nil {
		return err
	}
	if err := t.addTokens(c); err != nil {
		return fmt.Errorf("%s/tokenizer_config.json: %w", dir, err)
	}
	if err := t.readStops(dir); err != nil {
		return err
	}
	if err := t.findReplyTemplate(dir, c["response_template"]); err != nil {
		return err
	}
	return t.findTemplate(dir, c["chat_template"])
}

// extraTokens are further special tokens: a list, or an object of named ones.
type extraTokens struct {
	list  []token
	named map[string]token
}

func (e *extraTokens) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &e.list) == nil {
		return nil
	}
	return json.Unmarshal(data, &e.named)
}

func (t *Tokenizer) addTokens(c map[string]json.RawMessage) error {
	var problems []error
	read := func(name string, into any) {
		if raw, ok := c[name]; ok {
			if err := json.Unmarshal(raw, into); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", name, err))
			}
		}
	}
	special := func(name string, named token) {
		if name != "" && named.content != "" {
			t.names[name] = named.content
		}
		if named.content != "" {
			problems = append(problems, t.Add(bpe.AddedToken{Content: named.content, Special: true}))
		}
	}
	var byID map[int32]bpe.AddedToken
	read("added_tokens_decoder", &byID)
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		problems = append(problems, t.Add(byID[id]))
	}
	for _, name := range namedTokens {
		var named token
		read(name, &named)
		special(name, named)
	}
	for _, name := range []string{"extra_special_tokens", "additional_special_tokens"} {
		var extra extraTokens
		read(name, &extra)
		for _, name := range slices.Sorted(maps.Keys(extra.named)) {
			special(name, extra.named[name])
		}
		for _, token := range extra.list {
			special("", token)
		}
	}
	return errors.Join(problems...)
}

// ModelStopIDs are the ids at which transformers' generate stops in a model directory: eos_token_id, a number, a list
// or null, of generation_config.json, or else of config.json. Both files may be missing.
func ModelStopIDs(dir string) ([]int32, error) {
	for _, name := range []string{"generation_config.json", "config.json"} {
		var file struct {
			EOS bpe.IDs `json:"eos_token_id"`
		}
		if _, err := readJSON(dir, name, &file); err != nil {
			return nil, err
		}
		if len(file.EOS) > 0 {
			return file.EOS, nil
		}
	}
	return nil, nil
}

func (t *Tokenizer) readStops(dir string) error {
	stop, err := ModelStopIDs(dir)
	if err != nil {
		return err
	}
	if id, ok := t.ID(t.names["eos_token"]); ok {
		stop = append(stop, id)
	}
	for _, id := range stop {
		if !slices.Contains(t.stop, id) {
			t.stop = append(t.stop, id)
		}
	}
	return nil
}
