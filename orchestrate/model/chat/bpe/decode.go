package bpe

import (
	"encoding/json"
	"fmt"
)

// checkDecoder accepts the "decoder" ByteLevel, alone or in a Sequence of its own.
func checkDecoder(raw json.RawMessage) error {
	var d struct {
		Type     string
		Decoders []json.RawMessage
	}
	if !isNull(raw) {
		if err := json.Unmarshal(raw, &d); err != nil {
			return fmt.Errorf("decoder: %w", err)
		}
	}
	if d.Type == "Sequence" && len(d.Decoders) == 1 {
		return checkDecoder(d.Decoders[0])
	}
	if d.Type != "ByteLevel" {
		return fmt.Errorf("decoder %q is not supported: expected ByteLevel", d.Type)
	}
	return nil
}

// tokenBytes returns the bytes that a token stands for: an added token with a character outside the byte-level alphabet
// stands for its own UTF-8.
func tokenBytes(token string) []byte {
	if raw, ok := unspell(token); ok {
		return []byte(raw)
	}
	return []byte(token)
}

// TokenBytes returns the bytes of one id, nil for an id that is not in the vocabulary. The caller must not change them.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id].bytes
}

// Decode joins the bytes of ids and replaces ill-formed UTF-8 by U+FFFD. Unknown ids, and with skipSpecial the special
// tokens, are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var out []byte
	for _, id := range ids {
		if !(skipSpecial && t.Special(id)) {
			out = append(out, t.TokenBytes(id)...)
		}
	}
	return ToValidUTF8(string(out))
}
