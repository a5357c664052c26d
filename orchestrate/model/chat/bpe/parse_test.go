package bpe

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// edited returns a tokenizer.json of testdata with changes made to it.
func edited(t *testing.T, name string, change func(map[string]any)) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	change(file)
	if data, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRefusals(t *testing.T) {
	type object = map[string]any
	set := func(key string, value any) func(object) { return func(f object) { f[key] = value } }
	model := func(key string, value any) func(object) {
		return func(f object) { f["model"].(object)[key] = value }
	}
	split := func(pattern any, behavior string) func(object) {
		return set("pre_tokenizer", object{"type": "Sequence", "pretokenizers": []any{
			object{"type": "Split", "pattern": pattern, "behavior": behavior}, object{"type": "ByteLevel",
				"use_regex": false}}})
	}
	for want, change := range map[string]func(object){
		`model Unigram is not`:          model("type", "Unigram"),
		`model "WordPiece"`:             model("type", "WordPiece"),
		`unknown field "byte_fall"`:     model("byte_fall", true),
		`unk_token is "nope"`:           model("unk_token", "nope"),
		"dropout is 0.1":                model("dropout", 0.1),
		`end_of_word_suffix is "</w>"`:  model("end_of_word_suffix", "</w>"),
		`merges[0] joins "qq" and "r"`:  model("merges", []any{"qq r"}),
		`merges[0] is ["a" "b" "c"]`:    model("merges", []any{"a b c"}),
		"model.merges: json":            model("merges", 3),
		`token "a" the id -1`:           model("vocab", object{"a": -1}),
		`token "a" the id 99999999`:     model("vocab", object{"a": 99999999}),
		"model.vocab: json":             model("vocab", []any{1}),
		"model is missing":              set("model", nil),
		`normalizer "Precompiled"`:      set("normalizer", object{"type": "Precompiled"}),
		`unknown field "shape"`:         set("normalizer", object{"type": "NFC", "shape": 1}),
		`replacement "__" of Metaspace`: set("pre_tokenizer", object{"type": "Metaspace", "replacement": "__"}),
		`prepend_scheme "last"`: set("pre_tokenizer", object{"type": "Metaspace", "replacement": "_",
			"prepend_scheme": "last"}),
		`pre_tokenizer "UnicodeScripts"`: set("pre_tokenizer", object{"type": "UnicodeScripts"}),
		"not both ByteLevel":             set("pre_tokenizer", nil),
		"goes on after ByteLevel": set("pre_tokenizer", object{"type": "Sequence",
			"pretokenizers": []any{object{"type": "ByteLevel"}, object{"type": "Digits"}}}),
		`pattern that is not supported: "(a+)+$"`: split(object{"Regex": "(a+)+$"}, "Isolated"),
		`behavior "Merged"`:                       split(object{"Regex": patternGPT2}, "Merged"),
		"lookbehind":                              split(object{"Regex": "(?<=a)b"}, "Isolated"),
		"invalid nested repetition":               split(object{"Regex": "a++"}, "Isolated"),
		"Split lacks a pattern":                   split(object{}, "Isolated"),
		`decoder "WordPiece"`:                     set("decoder", object{"type": "WordPiece", "prefix": "##"}),
		`decoder "Strip" is not`: set("decoder", object{"type": "Sequence", "decoders": []any{object{"type": "Fuse"},
			object{"type": "Strip", "content": " ", "start": 0, "stop": 1}}}),
		`decoder ""`:                         set("decoder", nil),
		`post_processor "RobertaProcessing"`: set("post_processor", object{"type": "RobertaProcessing"}),
		`lacks the sequence "A"`: set("post_processor", object{"type": "TemplateProcessing",
			"single": []any{}}),
		`names "X"`: set("post_processor", object{"type": "TemplateProcessing",
			"single": []any{object{"SpecialToken": object{"id": "X"}}}}),
		"adds the id 12345": set("post_processor", object{"type": "TemplateProcessing",
			"single":         []any{object{"SpecialToken": object{"id": "X"}}, object{"Sequence": object{"id": "A"}}},
			"special_tokens": object{"X": object{"ids": []int{12345}}}}),
		"has id 5, but 0 in model.vocab": set("added_tokens",
			[]any{object{"id": 5, "content": "<|endoftext|>"}}),
	} {
		if _, err := Parse(edited(t, "qwen2", change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	for want, data := range map[string]string{
		"not a tokenizer.json": `{"model": `,
		"exceeded max depth":   strings.Repeat("[", 1_000_000),
	} {
		if _, err := Parse([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// Both spellings of merges and of Split are the same tokenizer.
func TestSpellings(t *testing.T) {
	type object = map[string]any
	want, _ := load(t, "llama3").EncodeMarkup("The player's 12345 boxes\n\n")
	tok, err := Parse(edited(t, "llama3", func(f object) {
		m := f["model"].(object)
		var lines []any
		for _, p := range m["merges"].([]any) {
			lines = append(lines, p.([]any)[0].(string)+" "+p.([]any)[1].(string))
		}
		m["merges"] = lines
		split := f["pre_tokenizer"].(object)["pretokenizers"].([]any)[0].(object)
		split["behavior"], split["invert"] = "Removed", true
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := tok.EncodeMarkup("The player's 12345 boxes\n\n"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestUnknownBytes(t *testing.T) {
	type object = map[string]any
	with := func(unk any) []byte {
		return edited(t, "smollm", func(f object) {
			f["added_tokens"] = []any{}
			m := f["model"].(object)
			m["vocab"], m["merges"], m["unk_token"] = object{"a": 0, "?": 1}, []any{}, unk
		})
	}
	tok, err := Parse(with(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := tok.EncodeMarkup("axya"); !slices.Equal(got, []int32{0, 0}) {
		t.Errorf("got %v, want the two known bytes", got)
	}
	if tok, err = Parse(with("?")); err != nil {
		t.Fatal(err)
	}
	if got, _ := tok.EncodeMarkup("axya"); !slices.Equal(got, []int32{0, 1, 1, 0}) {
		t.Errorf("got %v, want the unknown token twice", got)
	}
}

func TestAdd(t *testing.T) {
	tok := load(t, "smollm")
	size := tok.VocabSize()
	for _, a := range []AddedToken{{Content: "<new>", Special: true}, {Content: "ran", Special: true},
		{Content: "<|im_end|>"}} {
		if err := tok.Add(a); err != nil {
			t.Fatal(err)
		}
	}
	id, ok := tok.ID("<new>")
	if !ok || int(id) != size || tok.VocabSize() != size+1 || !tok.Special(id) {
		t.Errorf("<new> has id %d (known: %v) in a vocabulary of %d, want %d", id, ok, tok.VocabSize(), size)
	}
	ran, _ := tok.ID("ran")
	markup, _ := tok.EncodeMarkup("ran")
	ordinary, _ := tok.EncodeOrdinary("ran")
	if !slices.Equal(markup, []int32{ran}) || slices.Contains(ordinary, ran) || tok.Decode(ordinary, true) != "ran" {
		t.Errorf("a special token that merges can spell: markup %v, ordinary %v, id %d", markup, ordinary, ran)
	}
}
