package gyre

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"gyre/envs"
	"gyre/orchestrate/model/chat"
)

// textTag is an environment whose states are given texts and whose reward is 1 for a reply of an even number of characters.
const textTag = "benchmark-texts"

type textEnv struct {
	texts []string // of environment seeds 0, 1, …
	text  string
	ended bool
}

func (e *textEnv) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	if seed < 0 || seed >= int64(len(e.texts)) {
		return envs.Start{}, fmt.Errorf("there are %d texts, seed %d has none", len(e.texts), seed)
	}
	e.text, e.ended = e.texts[seed], false
	return envs.Start{}, nil
}

func (e *textEnv) Observe() envs.Observation { return envs.Observation{Text: e.text} }
func (e *textEnv) Close() error              { return nil }

func (e *textEnv) Step(_ context.Context, reply string) (envs.Result, error) {
	if e.ended {
		return envs.Result{}, envs.ErrNotRunning
	}
	e.ended = true
	result := envs.Result{Done: true, Valid: true, Effective: true}
	if utf8.RuneCountInString(reply)%2 == 0 {
		result.Reward, result.Success = 1, true
	}
	return result, nil
}

// registerTexts makes the texts of all steps playable and gives their length in tokens. A process may do it once.
func registerTexts(steps [][]string, model string) (length int, err error) {
	tokenizer, err := chat.Load(model)
	if err != nil {
		return 0, err
	}
	texts := slices.Concat(steps...)
	for _, text := range texts {
		ids, err := tokenizer.Encode(text, false)
		if err != nil {
			return 0, err
		}
		length = max(length, len(ids))
	}
	envs.Register(envs.Spec{Tag: textTag, Type: textTag, Doc: "given texts, rewarded for an even number of characters", MaxActions: 1,
		PlainReplies: true, NewOptions: func() any { return new(struct{}) }, New: func(any) (envs.Env, error) { return &textEnv{texts: texts}, nil }})
	return length, nil
}

// plainModel makes a folder with the weights of a model directory whose chat template adds nothing to a message, and whose end of
// sequence is a token that is hardly ever sampled: replies are as long as they may be.
func plainModel(dir, folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	tokenizer, err := chat.Load(dir)
	if err != nil {
		return err
	}
	unused := int32(-1)
	for id := range int32(tokenizer.VocabSize()) {
		if tokenizer.Special(id) && !slices.Contains(tokenizer.StopIDs(), id) {
			unused = id
		}
	}
	if unused < 0 {
		return fmt.Errorf("%s has no special token besides those that end a sequence", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		from, to := filepath.Join(dir, entry.Name()), filepath.Join(folder, entry.Name())
		switch entry.Name() {
		case "chat_template.jinja":
		case "config.json", "generation_config.json":
			err = setKey(from, to, "eos_token_id", unused)
		case "tokenizer_config.json":
			err = setKey(from, to, "eos_token", string(tokenizer.TokenBytes(unused)))
		default:
			if from, err = filepath.Abs(from); err == nil {
				err = os.Symlink(from, to)
			}
		}
		if err != nil {
			return err
		}
	}
	template := "{% for message in messages %}{{ message.content }}{% endfor %}"
	return os.WriteFile(filepath.Join(folder, "chat_template.jinja"), []byte(template), 0o644)
}

// setKey copies a JSON object with another value of a key.
func setKey(from, to, key string, value any) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	object[key] = value
	if text, err = json.Marshal(object); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
