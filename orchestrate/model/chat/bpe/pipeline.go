package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// component is a part of the pipeline in a tokenizer.json, with the keys of all kinds.
type component struct {
	Type string
	// Sequence
	Normalizers, PreTokenizers, Processors, Decoders []component
	// ByteLevel, Digits, Metaspace
	AddPrefixSpace   *bool   `json:"add_prefix_space"`
	TrimOffsets      bool    `json:"trim_offsets"`
	UseRegex         *bool   `json:"use_regex"`
	IndividualDigits bool    `json:"individual_digits"`
	Replacement      string  `json:"replacement"`
	StrRep           string  `json:"str_rep"`
	PrependScheme    *string `json:"prepend_scheme"`
	Split            *bool
	// Split, Punctuation, Replace, Prepend, Strip
	Pattern     struct{ Regex, String *string }
	Behavior    string
	Invert      bool
	Delimiter   string
	Content     string
	Prepend     string
	StripLeft   bool `json:"strip_left"`
	StripRight  bool `json:"strip_right"`
	Start, Stop int
	// TemplateProcessing
	Single []struct {
		SpecialToken, Sequence *struct{ ID string }
	}
	Pair          json.RawMessage
	SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`

	stray error // a key that is none of these
}

// UnmarshalJSON has the signature of json.Unmarshaler.
func (c *component) UnmarshalJSON(data []byte) error {
	type plain component
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, inner := range []string{"normalizers", "pretokenizers", "processors", "decoders", "single",
		"special_tokens"} {
		delete(all, inner) // whose own keys are their matter
	}
	own, err := json.Marshal(all)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(own))
	d.DisallowUnknownFields()
	if err := d.Decode(new(plain)); err != nil {
		c.stray = fmt.Errorf("%q: %w", c.Type, err)
	}
	return nil
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
		if step.stray != nil {
			return s, fmt.Errorf("post_processor %w", step.stray)
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
