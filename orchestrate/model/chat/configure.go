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

// idList is an eos_token_id: a number, a list or null.
type idList []int32

func (l *idList) UnmarshalJSON(data []byte) error {
	var one *int32
	if err := json.Unmarshal(data, &one); err == nil {
		if one != nil {
			*l = idList{*one}
		}
		return nil
	}
	return json.Unmarshal(data, (*[]int32)(l))
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

func (t *Tokenizer) addTokens(c map[string]json.RawMessage) error {
	byID := map[int32]bpe.AddedToken{}
	if raw, ok := c["added_tokens_decoder"]; ok {
		if err := json.Unmarshal(raw, &byID); err != nil {
			return fmt.Errorf("added_tokens_decoder: %w", err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		if err := t.Add(byID[id]); err != nil {
			return err
		}
	}
	for _, name := range namedTokens {
		var named token
		if raw, ok := c[name]; ok {
			if err := json.Unmarshal(raw, &named); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		if named.content == "" {
			continue
		}
		t.names[name] = named.content
		if err := t.Add(bpe.AddedToken{Content: named.content, Special: true}); err != nil {
			return err
		}
	}
	return errors.Join(t.addExtra(c["extra_special_tokens"]), t.addExtra(c["additional_special_tokens"]))
}

// addExtra adds further special tokens: a list of tokens, or an object of named ones.
func (t *Tokenizer) addExtra(raw json.RawMessage) error {
	if len(raw) == 0 {
		return nil
	}
	var list []token
	if err := json.Unmarshal(raw, &list); err != nil {
		var named map[string]token
		if json.Unmarshal(raw, &named) != nil {
			return fmt.Errorf("extra special tokens: %w", err)
		}
		for _, name := range slices.Sorted(maps.Keys(named)) {
			t.names[name] = named[name].content
			list = append(list, named[name])
		}
	}
	for _, extra := range list {
		if err := t.Add(bpe.AddedToken{Content: extra.content, Special: true}); err != nil {
			return err
		}
	}
	return nil
}

// ModelStopIDs are the ids at which transformers' generate stops in a model directory: eos_token_id, a number, a list
// or null, of generation_config.json, or else of config.json. Both files may be missing.
func ModelStopIDs(dir string) ([]int32, error) {
	for _, name := range []string{"generation_config.json", "config.json"} {
		var file struct {
			EOS idList `json:"eos_token_id"`
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
