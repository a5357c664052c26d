package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gyre/orchestrate/model/chat/bpe"
)

// chatSpecials are the first ids of the tokenizers that these tests train.
var chatSpecials = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

const endOfText, imStart, imEnd = int32(0), int32(1), int32(2)

// withBOS is the post-processor of these tokenizers: it puts <|endoftext|> before a text.
const withBOS = `"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "B"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"B": {"ids": [0]}}}`

// trained is a tokenizer.json of 320 tokens.
var trained = sync.OnceValues(func() ([]byte, error) {
	corpus := []string{"system\nuser\nassistant\nYou play games. The player pushes the box right, right, up and " +
		"left.\n#####\n#P_X#\n",
		"<think> the answer is </think><answer>Right</answer>\nsystem\nuser\nassistant\n\n\n"}
	return bpe.Train(corpus, 320, chatSpecials)
})

// directory writes a model directory with a small tokenizer and the given files.
func directory(t testing.TB, files map[string]string) string {
	t.Helper()
	data, err := trained()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if files["tokenizer_config.json"] == "" {
		files["tokenizer_config.json"] = `{"eos_token": "<|im_end|>", "bos_token": {"content": "<|endoftext|>"}, "pad_token": null}`
	}
	files["tokenizer.json"] = strings.Replace(string(data), `"post_processor": null`, withBOS, 1)
	for name, content := range files {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func open(t testing.TB, files map[string]string) *Tokenizer {
	t.Helper()
	tok, err := Load(directory(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestEncodeKinds(t *testing.T) {
	tok := open(t, map[string]string{})
	const text = "user<|im_end|>"
	document, _ := tok.Encode(text, true)
	markup, _ := tok.EncodeMarkup(text)
	ordinary, _ := tok.Encode(text, false)
	if !slices.Equal(document, append([]int32{endOfText}, markup...)) || markup[len(markup)-1] != imEnd {
		t.Errorf("document %v, markup %v: want a BOS more, and the special token", document, markup)
	}
	if slices.ContainsFunc(ordinary, tok.Special) || tok.Decode(ordinary, true) != text {
		t.Errorf("ordinary text: %v, %q", ordinary, tok.Decode(ordinary, true))
	}
	if got := tok.Decode(document, true); got != "user" {
		t.Errorf("without special tokens: %q", got)
	}
}

func TestVocabulary(t *testing.T) {
	tok := open(t, map[string]string{})
	all := tok.Vocabulary()
	if len(all) != tok.VocabSize() || string(all[imEnd]) != "<|im_end|>" || tok.TokenBytes(int32(len(all))) != nil ||
		tok.TokenBytes(-1) != nil {
		t.Errorf("%d entries, vocabulary size %d, id %d is %q", len(all), tok.VocabSize(), imEnd, all[imEnd])
	}
}

func TestStopIDs(t *testing.T) {
	for _, c := range []struct {
		files map[string]string
		want  []int32
	}{
		{map[string]string{}, []int32{imEnd}},
		{map[string]string{"generation_config.json": `{"eos_token_id": [0, 2]}`, "config.json": `{"eos_token_id": 1}`},
			[]int32{0, 2}},
		{map[string]string{"generation_config.json": `{}`, "config.json": `{"eos_token_id": 1}`}, []int32{1, 2}},
		{map[string]string{"generation_config.json": `{"eos_token_id": null}`, "tokenizer_config.json": `{}`}, nil},
	} {
		if got := open(t, c.files).StopIDs(); !slices.Equal(got, c.want) {
			t.Errorf("%v: stop ids %v, want %v", c.files, got, c.want)
		}
	}
}

// What tokenizer_config.json adds to tokenizer.json.
func TestConfiguredTokens(t *testing.T) {
	tok := open(t, map[string]string{"tokenizer_config.json": `{
		"added_tokens_decoder": {"0": {"content": "<|endoftext|>", "special": true}, "9000": {"content": "<tool>", "special": false}},
		"additional_special_tokens": ["<a>", {"content": "<b>"}], "extra_special_tokens": {"image_token": "<image>"},
		"pad_token": "[PAD]", "eos_token": "<|im_end|>"}`})
	for content, special := range map[string]bool{"<tool>": false, "<a>": true, "<b>": true, "<image>": true,
		"[PAD]": true} {
		ids, _ := tok.EncodeMarkup("x" + content)
		last := ids[len(ids)-1]
		if string(tok.TokenBytes(last)) != content || tok.Special(last) != special {
			t.Errorf("%s became %v (special: %v), want one token, special: %v", content, ids, tok.Special(last),
				special)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"tokenizer_config.json: unexpected end":    {"tokenizer_config.json": "{"},
		`eos_token: expected a token as a string`:  {"tokenizer_config.json": `{"eos_token": 7}`},
		"added_tokens_decoder":                     {"tokenizer_config.json": `{"added_tokens_decoder": {"x": {"content": "y"}}}`},
		"generation_config.json":                   {"generation_config.json": `{"eos_token_id": "two"}`},
		"chat_template.jinja: not a chat template": {"chat_template.jinja": "{% for %}"},
		`none is called "default"`:                 {"chat_template.json": `{"chat_template": [{"name": "a", "template": "x"}, {"name": "b", "template": "y"}]}`},
		"expected a string or a list":              {"chat_template.json": `{"chat_template": 3}`},
	} {
		_, err := Load(directory(t, files))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "tokenizer.json does not exist") {
		t.Errorf("empty directory: %v", err)
	}
	dir := directory(t, map[string]string{})
	if tok, err := Load(filepath.Join(dir, "tokenizer.json")); err != nil || tok.HasTemplate() ||
		len(tok.StopIDs()) != 0 {
		t.Errorf("a single file: %v", err)
	}
}

func TestTrainedFileIsPlainJSON(t *testing.T) {
	data, err := bpe.Train([]string{"a a a"}, 300, chatSpecials)
	if err != nil || !json.Valid(data) {
		t.Fatal(err)
	}
}
