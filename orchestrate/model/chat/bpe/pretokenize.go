package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// stage is one pre-tokenizer: it splits each piece that the stage before it made.
type stage struct {
	split  splitter // nil: pieces stay whole
	prefix bool     // put a space before a piece that does not start with one
}

// parsePreTokenizer reads the "pre_tokenizer" of a tokenizer.json into its stages. The last must be ByteLevel.
func parsePreTokenizer(raw json.RawMessage) ([]stage, error) {
	if isNull(raw) {
		return nil, errors.New(`pre_tokenizer is null: expected ByteLevel, or a Sequence that ends with it (byte-level BPE)`)
	}
	stages, byteLevel, err := preTokenizerStages(raw)
	if err != nil {
		return nil, err
	}
	if !byteLevel {
		return nil, errors.New("pre_tokenizer does not end with ByteLevel: only byte-level BPE is supported")
	}
	return stages, nil
}

// preTokenizerStages returns the stages of one pre-tokenizer, and whether the last is ByteLevel.
func preTokenizerStages(raw json.RawMessage) (stages []stage, byteLevel bool, err error) {
	var p struct {
		Type             string
		PreTokenizers    []json.RawMessage `json:"pretokenizers"`
		AddPrefixSpace   *bool             `json:"add_prefix_space"`
		UseRegex         *bool             `json:"use_regex"`
		IndividualDigits bool              `json:"individual_digits"`
		Pattern          struct{ Regex, String *string }
		Behavior         string
		Invert           bool
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, false, fmt.Errorf("pre_tokenizer: %w", err)
	}
	switch p.Type {
	case "Sequence":
		for _, child := range p.PreTokenizers {
			if byteLevel {
				return nil, false, errors.New("pre_tokenizer Sequence goes on after ByteLevel, which is not supported")
			}
			s, last, err := preTokenizerStages(child)
			if err != nil {
				return nil, false, err
			}
			stages, byteLevel = append(stages, s...), last
		}
		return stages, byteLevel, nil
	case "ByteLevel":
		s := stage{prefix: p.AddPrefixSpace == nil || *p.AddPrefixSpace}
		if p.UseRegex == nil || *p.UseRegex {
			s.split = gpt2{}
		}
		return []stage{s}, true, nil
	case "Digits":
		return []stage{{split: digits{p.IndividualDigits}}}, false, nil
	case "Split":
		if p.Pattern.Regex == nil {
			return nil, false, errors.New("pre_tokenizer Split by a plain string is not supported: expected one of " +
				"the known patterns")
		}
		if isolated := p.Behavior == "Isolated" && !p.Invert || p.Behavior == "Removed" && p.Invert; !isolated {
			return nil, false, fmt.Errorf("pre_tokenizer Split with behavior %q, invert %v is not supported: "+
				"expected \"Isolated\"", p.Behavior, p.Invert)
		}
		s, err := patternSplitter(*p.Pattern.Regex)
		return []stage{{split: s}}, false, err
	}
	return nil, false, fmt.Errorf("pre_tokenizer %q is not supported: expected ByteLevel, Split, Digits or a "+
		"Sequence of these", p.Type)
}

func patternSplitter(pattern string) (splitter, error) {
	switch pattern {
	case patternGPT2:
		return gpt2{}, nil
	case patternQwen2:
		return modern{digits: 1}, nil
	case patternLlama3:
		return modern{digits: 3}, nil
	}
	return nil, fmt.Errorf("pre_tokenizer Split has a pattern that is not known: %q; known are those of GPT-2, "+
		"Qwen2 and Llama 3", pattern)
}

// words calls emit for each word of s after stages.
func words(stages []stage, s string, emit func(word string)) {
	if s == "" {
		return
	}
	if len(stages) == 0 {
		emit(s)
		return
	}
	first := stages[0]
	if first.prefix && !strings.HasPrefix(s, " ") {
		s = " " + s
	}
	for first.split != nil && s != "" {
		n := first.split.next(s)
		words(stages[1:], s[:n], emit)
		s = s[n:]
	}
	words(stages[1:], s, emit)
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }
