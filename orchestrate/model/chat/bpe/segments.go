package bpe

import (
	"fmt"
	"strings"
)

// Segment is a stretch of text in which added tokens are markup, or in which everything is ordinary text.
type Segment struct {
	Text     string
	Ordinary bool
}

// EncodeSegments encodes segments as one text. Added tokens are found inside markup segments only, so that neither an
// ordinary segment nor its meeting with a neighbour can make one. from gives the segment that each id comes from; an id that spans several counts as the first ordinary
// one's.
func (t *Tokenizer) EncodeSegments(segments []Segment) (ids []int32, from []int, err error) {
	total := 0
	for _, s := range segments {
		if total += len(s.Text); total > MaxText {
			return nil, nil, fmt.Errorf("text of more than %d bytes is too long to encode at once", MaxText)
		}
	}
	j := &joiner{t: t, segments: segments, encoder: encoder{model: t.ordinary}, ids: make([]int32, 0, total/3),
		from: make([]int, 0, total/3)}
	for i, s := range segments {
		text := ToValidUTF8(s.Text)
		if s.Ordinary {
			j.add(i, normalize(t.forms, text))
			continue
		}
		t.markup.split(text, func(rest string) { j.add(i, rest) }, func(a AddedToken) { j.flush(); j.emit(a.ID, i) })
	}
	j.flush()
	return j.ids, j.from, nil
}

// joiner collects the text between two added tokens and encodes it as a whole.
type joiner struct {
	t        *Tokenizer
	segments []Segment
	encoder  encoder
	text     strings.Builder
	ends     []end
	ids      []int32
	from     []int
}

// end is where the part of a segment ends in the collected text.
type end struct{ segment, offset int }

func (j *joiner) add(segment int, text string) {
	j.text.WriteString(text)
	j.ends = append(j.ends, end{segment, j.text.Len()})
}

func (j *joiner) emit(id int32, segment int) {
	j.ids, j.from = append(j.ids, id), append(j.from, segment)
}

func (j *joiner) flush() {
	text, ends := j.text.String(), j.ends
	j.text, j.ends = strings.Builder{}, nil
	if text == "" {
		return
	}
	offset, part := 0, 0
	// own emits an id that stands for the next length bytes.
	own := func(id int32, length int) {
		for part+1 < len(ends) && ends[part].offset <= offset {
			part++
		}
		offset += length
		segment := ends[part].segment
		for k := part; k < len(ends) && (k == part || ends[k-1].offset < offset); k++ {
			if j.segments[ends[k].segment].Ordinary {
				segment = ends[k].segment
				break
			}
		}
		j.emit(id, segment)
	}
	var ids []int32
	word := func(w string) {
		start := offset
		ids = j.encoder.word(w, ids[:0])
		for _, id := range ids {
			own(id, len(j.t.TokenBytes(id)))
		}
		offset = start + len(w) // bytes that the vocabulary lacks have no id
	}
	// Where the pre-tokenizer puts a space before words, or the meeting of two segments changes the normal form,
	// offsets drift by those bytes: the ids are right, and the owner of an id at a boundary may be its neighbour's.
	j.t.spaces.split(text, func(rest string) { words(j.t.stages, rest, word) },
		func(a AddedToken) { own(a.ID, len(a.Content)) })
}
