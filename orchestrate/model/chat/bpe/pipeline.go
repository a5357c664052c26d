package bpe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// component is a part of the pipeline in a tokenizer.json.
type component struct {
	Type string
	// Sequence
	Normalizers, PreTokenizers, Processors, Decoders []component
	// ByteLevel, Digits, Split
	AddPrefixSpace   *bool `json:"add_prefix_space"`
	UseRegex         *bool `json:"use_regex"`
	IndividualDigits bool  `json:"individual_digits"`
	Pattern          struct{ Regex *string }
	Behavior         string
	Invert           bool
	// TemplateProcessing
	Single []struct {
		SpecialToken, Sequence *struct{ ID string }
	}
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
}

// steps are the components one after the other, without Sequences; null has none.
func (c *component) steps() (all []component) {
	if c == nil {
		return nil
	}
	if c.Type != "Sequence" {
		return []component{*c}
	}
	for _, child := range slices.Concat(c.Normalizers, c.PreTokenizers, c.Processors, c.Decoders) {
		all = append(all, child.steps()...)
	}
	return all
}

// parseNormalizer takes normal forms.
func parseNormalizer(c *component) (all []form, err error) {
	for _, step := range c.steps() {
		f, ok := forms[step.Type]
		if !ok {
			return nil, fmt.Errorf("normalizer %q is not supported: expected null, NFC, NFD, NFKC, NFKD or a Sequence "+
				"of these (byte-level BPE)", step.Type)
		}
		all = append(all, f)
	}
	return all, nil
}

// checkDecoder accepts ByteLevel alone.
func checkDecoder(c *component) error {
	steps := c.steps()
	if len(steps) == 0 {
		steps = []component{{}}
	}
	if len(steps) > 1 || steps[0].Type != "ByteLevel" {
		return fmt.Errorf("decoder %q is not supported: expected ByteLevel", steps[0].Type)
	}
	return nil
}

// stage is one pre-tokenizer: it splits each piece that the stage before it made.
type stage struct {
	split  splitter // nil: pieces stay whole
	prefix bool     // put a space before a piece that does not start with one
}

// parsePreTokenizer takes Digits and Split, and ByteLevel at the end.
func parsePreTokenizer(c *component) (stages []stage, err error) {
	steps := c.steps()
	for i, step := range steps {
		s, err := step.stage()
		if err != nil {
			return nil, err
		}
		stages = append(stages, s)
		if step.Type == "ByteLevel" && i+1 < len(steps) {
			return nil, errors.New("pre_tokenizer Sequence goes on after ByteLevel, which is not supported")
		}
	}
	if len(steps) == 0 || steps[len(steps)-1].Type != "ByteLevel" {
		return nil, errors.New("pre_tokenizer does not end with ByteLevel: only byte-level BPE is supported")
	}
	return stages, nil
}

func (c component) stage() (stage, error) {
	switch c.Type {
	case "ByteLevel":
		s := stage{prefix: c.AddPrefixSpace == nil || *c.AddPrefixSpace}
		if c.UseRegex == nil || *c.UseRegex {
			s.split = gpt2
		}
		return s, nil
	case "Digits":
		return stage{split: digits{c.IndividualDigits}}, nil
	case "Split":
		if c.Pattern.Regex == nil {
			return stage{}, errors.New("pre_tokenizer Split by a plain string is not supported: expected one of the " +
				"known patterns")
		}
		if isolated := c.Behavior == "Isolated" && !c.Invert || c.Behavior == "Removed" && c.Invert; !isolated {
			return stage{}, fmt.Errorf("pre_tokenizer Split with behavior %q, invert %v is not supported: expected "+
				"\"Isolated\"", c.Behavior, c.Invert)
		}
		s, ok := splitters[*c.Pattern.Regex]
		if !ok {
			return stage{}, fmt.Errorf("pre_tokenizer Split has a pattern that is not known: %q; known are those of "+
				"GPT-2, Qwen2 and Llama 3", *c.Pattern.Regex)
		}
		return stage{split: s}, nil
	}
	return stage{}, fmt.Errorf("pre_tokenizer %q is not supported: expected ByteLevel, Split, Digits or a Sequence of "+
		"these", c.Type)
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

// surround is what a post-processor adds before and after a text.
type surround struct{ prefix, suffix []int32 }

// parsePostProcessor takes ByteLevel (which changes offsets only) and TemplateProcessing.
func parsePostProcessor(c *component) (s surround, err error) {
	for _, step := range c.steps() {
		switch step.Type {
		case "ByteLevel":
		case "TemplateProcessing":
			outer, err := step.surround()
			if err != nil {
				return s, fmt.Errorf("post_processor template %w", err)
			}
			s = surround{slices.Concat(outer.prefix, s.prefix), slices.Concat(s.suffix, outer.suffix)}
		default:
			return s, fmt.Errorf("post_processor %q is not supported: expected ByteLevel, TemplateProcessing or a "+
				"Sequence of these", step.Type)
		}
	}
	return s, nil
}

func (c component) surround() (s surround, err error) {
	seen := false
	for _, part := range c.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A" && !seen:
			seen = true
		case part.SpecialToken != nil:
			token, ok := c.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return s, fmt.Errorf("names %q, which its special_tokens lack", part.SpecialToken.ID)
			}
			if seen {
				s.suffix = append(s.suffix, token.IDs...)
			} else {
				s.prefix = append(s.prefix, token.IDs...)
			}
		default:
			return s, errors.New(`has a part that is neither a special token nor the one sequence "A"`)
		}
	}
	if !seen {
		return s, errors.New(`lacks the sequence "A"`)
	}
	return s, nil
}

func (s surround) check(size int) error {
	for _, id := range slices.Concat(s.prefix, s.suffix) {
		if id < 0 || int(id) >= size {
			return fmt.Errorf("post_processor adds the id %d, but the vocabulary ends at %d", id, size-1)
		}
	}
	return nil
}
