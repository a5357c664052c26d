package bpe

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// unkPenalty is what an unknown character costs beyond the least likely token (SentencePiece).
const unkPenalty = 10

// readUnigram reads a Unigram model (Kudo 2018): tokens with their log-probabilities, in the order of their ids.
func (m *model) readUnigram(f modelFile) error {
	var list [][2]json.RawMessage
	if err := json.Unmarshal(f.Vocab, &list); err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	if len(list) == 0 || len(list) > maxTokens {
		return fmt.Errorf("model.vocab has %d tokens, expected 1 to %d", len(list), maxTokens)
	}
	m.vocab, m.scores = make(map[string]int32, len(list)), make([]float64, len(list))
	for id, entry := range list {
		var spelled string
		if err := errors.Join(json.Unmarshal(entry[0], &spelled), json.Unmarshal(entry[1], &m.scores[id])); err != nil {
			return fmt.Errorf("model.vocab[%d]: expected [token, score]: %w", id, err)
		}
		m.vocab[spelled] = int32(id)
		m.longest = max(m.longest, len(spelled))
	}
	m.raw, m.least = m.vocab, slices.Min(m.scores)
	if f.UnkID == nil || *f.UnkID < 0 || int(*f.UnkID) >= len(list) {
		return fmt.Errorf("model.unk_id is missing or outside of model.vocab, expected 0 to %d", len(list)-1)
	}
	m.unk = *f.UnkID
	return nil
}

// arc is the last token of the most likely way to a position of a word.
type arc struct {
	score float64
	start int // -1: the position is not reached
	id    int32
}

// bestPath appends the most likely tokens of a word (Viterbi): O(n · longest token). Of equally likely ways the one
// found first stays, and neighbouring unknown characters are one.
func (e *encoder) bestPath(word string, out []token) []token {
	m := e.model
	best := make([]arc, len(word)+1)
	for i := range best {
		best[i].start = -1
	}
	reach := func(start, end int, id int32, score float64) {
		if score += best[start].score; best[end].start < 0 || score > best[end].score {
			best[end] = arc{score, start, id}
		}
	}
	for start := 0; start < len(word); {
		_, first := utf8.DecodeRuneInString(word[start:])
		alone := false
		for n := 1; n <= m.longest && start+n <= len(word); n++ {
			if id, ok := m.raw[word[start:start+n]]; ok {
				reach(start, start+n, id, m.scores[id])
				alone = alone || n == first
			}
		}
		if !alone {
			reach(start, start+first, m.unk, m.least-unkPenalty)
		}
		start += first
	}
	var arcs []token // from the end
	for end := len(word); end > 0; end = best[end].start {
		a := token{best[end].id, int32(end - best[end].start)}
		if n := len(arcs); n > 0 && a.id == m.unk && arcs[n-1].id == m.unk {
			arcs[n-1].width += a.width
		} else {
			arcs = append(arcs, a)
		}
	}
	at := 0
	for i := len(arcs) - 1; i >= 0; i-- {
		end := at + int(arcs[i].width)
		bytes := false
		if arcs[i].id == m.unk {
			out, bytes = m.fallback(word[at:end], out)
		}
		if !bytes {
			out = append(out, arcs[i])
		}
		at = end
	}
	return out
}
