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
	document, _ := tok.EncodeDocument(text)
	markup, _ := tok.EncodeMarkup(text)
	ordinary, _ := tok.EncodeOrdinary(text)
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

func TestLoad(t *testing.T) {
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

// The text of a reply has the special tokens that delimit, and not those that end it or have another role.
func TestSaid(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": ChatML, "tokenizer_config.json": `{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", ` +
		`"extra_special_tokens": {"call_token": "<|im_start|>"}}`})
	ids, err := tok.EncodeMarkup("é<|im_start|>f<|endoftext|>()<|im_end|>")
	if err != nil || !tok.Special(ids[len(ids)-1]) {
		t.Fatal(ids, err)
	}
	if got := tok.Said(append(ids, 99999)); got != "é<|im_start|>f()" {
		t.Errorf("%q", got)
	}
	stream, text := tok.Stream(true), ""
	for _, id := range ids {
		text += string(stream.Add(id))
	}
	if text += string(stream.Finish()); text != tok.Said(ids) {
		t.Errorf("in pieces %q", text)
	}
	if got := tok.Decode(ids, true); got != "éf()" {
		t.Errorf("without any: %q", got)
	}
}
