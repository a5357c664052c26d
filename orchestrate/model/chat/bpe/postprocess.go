package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// surround is what a post-processor adds before and after a text.
type surround struct{ prefix, suffix []int32 }

func (s surround) check(size int) error {
	for _, id := range slices.Concat(s.prefix, s.suffix) {
		if id < 0 || int(id) >= size {
			return fmt.Errorf("post_processor adds the id %d, but the vocabulary ends at %d", id, size-1)
		}
	}
	return nil
}

// parsePostProcessor reads the "post_processor" of a tokenizer.json: null, ByteLevel (which changes offsets only),
// TemplateProcessing, or a Sequence of these.
func parsePostProcessor(raw json.RawMessage) (surround, error) {
	if isNull(raw) {
		return surround{}, nil
	}
	var p struct {
		Type       string
		Processors []json.RawMessage
		Single     []struct {
			SpecialToken, Sequence *struct{ ID string }
		}
		SpecialTokens map[string]struct{ IDs []int32 } `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return surround{}, fmt.Errorf("post_processor: %w", err)
	}
	var s surround
	switch p.Type {
	case "ByteLevel":
	case "Sequence":
		for _, child := range p.Processors {
			outer, err := parsePostProcessor(child)
			if err != nil {
				return surround{}, err
			}
			s = surround{slices.Concat(outer.prefix, s.prefix), slices.Concat(s.suffix, outer.suffix)}
		}
	case "TemplateProcessing":
		seen := false
		for _, part := range p.Single {
			switch {
			case part.Sequence != nil && part.Sequence.ID == "A" && !seen:
				seen = true
			case part.SpecialToken != nil:
				token, ok := p.SpecialTokens[part.SpecialToken.ID]
				if !ok {
					return surround{}, fmt.Errorf("post_processor template names %q, which its special_tokens lack",
						part.SpecialToken.ID)
				}
				if seen {
					s.suffix = append(s.suffix, token.IDs...)
				} else {
					s.prefix = append(s.prefix, token.IDs...)
				}
			default:
				return surround{}, errors.New(`post_processor template has a part that is neither a special token nor the one sequence "A"`)
			}
		}
		if !seen {
			return surround{}, errors.New(`post_processor template lacks the sequence "A"`)
		}
	default:
		return surround{}, fmt.Errorf("post_processor %q is not supported: expected ByteLevel, TemplateProcessing "+
			"or a Sequence of these", p.Type)
	}
	return s, nil
}
