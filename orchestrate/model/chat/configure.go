package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gyre/orchestrate/model/chat/bpe"
)

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
