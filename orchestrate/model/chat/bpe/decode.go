package bpe

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decoder turns the spellings of tokens into text.
type decoder struct {
	byteLevel bool                                    // tokens spell bytes
	each      []func(token string, first bool) string // what is done to each token
	fallback  bool                                    // <0xE2> stands for a byte
	strip     string                                  // taken from the start of the text, at most…
	times     int
}

// parseDecoder takes ByteLevel alone, or steps on each token, then ByteFallback, then Fuse and a Strip of the whole.
func parseDecoder(c *component) (d decoder, err error) {
	steps := c.steps()
	if len(steps) == 0 {
		steps = []component{{}}
	}
	fused := false
	for i, step := range steps {
		switch {
		case step.Type == "ByteLevel" && len(steps) == 1:
			d.byteLevel = true
		case step.Type == "ByteFallback" && !fused:
			d.fallback = true
		case step.Type == "Fuse":
			fused = true
		case step.Type == "Strip" && fused && step.Stop == 0 && i+1 == len(steps):
			d.strip, d.times = step.Content, step.Start
		case (step.Type == "Replace" || step.Type == "Strip" || step.Type == "Metaspace") && !fused && !d.fallback:
			f, err := step.eachToken()
			if err != nil {
				return d, fmt.Errorf("decoder %w", err)
			}
			d.each = append(d.each, f)
		default:
			return d, fmt.Errorf("decoder %q is not supported at place %d: expected ByteLevel, or Replace, Strip and "+
				"Metaspace, then ByteFallback, Fuse and a Strip with stop 0", step.Type, i)
		}
		if step.stray != nil {
			return d, fmt.Errorf("decoder %w", step.stray)
		}
	}
	return d, nil
}

func (c component) eachToken() (func(string, bool) string, error) {
	switch c.Type {
	case "Replace":
		replace, err := c.replacer()
		return func(s string, _ bool) string { return replace(s) }, err
	case "Strip":
		if utf8.RuneCountInString(c.Content) != 1 {
			return nil, errors.New("content of Strip: expected one character")
		}
		return func(s string, _ bool) string {
			for range c.Start {
				s = strings.TrimPrefix(s, c.Content)
			}
			for range c.Stop {
				s = strings.TrimSuffix(s, c.Content)
			}
			return s
		}, nil
	}
	s, err := c.metaspaceStage()
	return func(token string, first bool) string {
		if first && s.prefix != "" {
			return strings.ReplaceAll(token, s.spaces, "")
		}
		return strings.ReplaceAll(token, s.spaces, " ")
	}, err
}

// text returns the bytes that a token stands for, and whether it is a byte of a character. In a byte-level vocabulary,
// an added token with a character outside of its alphabet stands for its own UTF-8.
func (d *decoder) text(token string, first bool) (text []byte, single bool) {
	if d.byteLevel {
		if raw, ok := unspell(token); ok {
			return []byte(raw), false
		}
		return []byte(token), false
	}
	for _, f := range d.each {
		token = f(token, first)
	}
	if d.fallback && len(token) == 6 && strings.HasPrefix(token, "<0x") && token[5] == '>' {
		if b, err := strconv.ParseUint(token[3:5], 16, 8); err == nil {
			return []byte{byte(b)}, true
		}
	}
	return []byte(token), false
}

// Stream decodes ids one after the other. What it gives, joined, is what Decode gives.
type Stream interface {
	// Add gives the bytes that are certain once id follows: characters may be cut, in which case the rest comes later.
	Add(id int32) []byte
	// Finish gives the bytes that Add still held back.
	Finish() []byte
}

type stream struct {
	t           *Tokenizer
	skipSpecial bool
	begun       bool
	run         []byte // byte tokens: how they read is certain when another token follows
	times       int    // of decoder.strip
}

// Stream starts a text.
func (t *Tokenizer) Stream(skipSpecial bool) Stream {
	return &stream{t: t, skipSpecial: skipSpecial, times: t.decoder.times}
}

// Add has the signature of Stream.
func (s *stream) Add(id int32) []byte {
	if id < 0 || int(id) >= len(s.t.pieces) || s.skipSpecial && s.t.pieces[id].special {
		return nil
	}
	p := &s.t.pieces[id]
	text := p.bytes
	if !s.begun && s.t.decoder.each != nil {
		text, _ = s.t.decoder.text(p.spelled, true)
	}
	s.begun = true
	if p.single {
		s.run = append(s.run, text...)
		return nil
	}
	if len(s.run) > 0 {
		text = append(s.Finish(), text...)
	}
	return s.cut(text)
}

// Finish has the signature of Stream.
func (s *stream) Finish() []byte {
	text := s.run
	s.run = nil
	if !utf8.Valid(text) { // each byte of the run counts as unreadable
		text = []byte(strings.Repeat(string(utf8.RuneError), len(text)))
	}
	return s.cut(text)
}

// cut takes what the decoder strips from the start of the text.
func (s *stream) cut(text []byte) []byte {
	for s.times > 0 && len(text) > 0 {
		rest, found := strings.CutPrefix(string(text), s.t.decoder.strip)
		if !found {
			s.times = 0
			break
		}
		text, s.times = []byte(rest), s.times-1
	}
	return text
}
