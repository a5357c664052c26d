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
// ordinary segment nor its meeting with a neighbour can make one. from gives the segment that each id comes from; an id
// that spans several counts as the first ordinary one's. goesOn says that other ids come before: the text is not begun
// anew, with the metaspace that some tokenizers put there.
func (t *Tokenizer) EncodeSegments(segments []Segment, goesOn bool) (ids []int32, from []int, err error) {
	total := 0
	for _, s := range segments {
		if total += len(s.Text); total > MaxText {
			return nil, nil, fmt.Errorf("text of more than %d bytes is too long to encode at once", MaxText)
		}
	}
	j := &joiner{t: t, segments: segments, goesOn: goesOn, encoder: encoder{model: t.ordinary},
		ids: make([]int32, 0, total/3), from: make([]int, 0, total/3)}
	var text strings.Builder
	text.Grow(total)
	for i, s := range segments {
		text.WriteString(ToValidUTF8(s.Text))
		j.ends = append(j.ends, end{i, text.Len()})
	}
	j.text = text.String()
	whole := &owners{joiner: j, ends: j.ends}
	t.plain.split(j.text, whole.may, j.rest,
		func(start, end int, a AddedToken) { whole.own(a.ID, start, end) })
	return j.ids, j.from, nil
}

// joiner encodes segments as one text.
type joiner struct {
	t        *Tokenizer
	segments []Segment
	goesOn   bool
	text     string
	ends     []end
	encoder  encoder
	tokens   []token
	ids      []int32
	from     []int
}

// end is where the part of a segment ends in a text.
type end struct{ segment, offset int }

// owners knows which part of a text belongs to whom.
type owners struct {
	*joiner
	ends []end
	part int // the one that the position asked for last lies in
	// inexact says that parts may end some bytes away from where they should.
	inexact bool
}

// at gives the part that the byte at a position lies in.
func (o *owners) at(position int) end {
	for o.part > 0 && o.ends[o.part-1].offset > position {
		o.part--
	}
	for o.part+1 < len(o.ends) && o.ends[o.part].offset <= position {
		o.part++
	}
	return o.ends[o.part]
}

// may says whether an added token may be found: in one segment of markup, or white space anywhere.
func (o *owners) may(start, end int, a AddedToken) bool {
	if a.blank() {
		return true
	}
	part := o.at(start)
	return !o.segments[part.segment].Ordinary && end <= part.offset && !o.inexact
}

// own emits an id that stands for text from start to end.
func (o *owners) own(id int32, start, end int) {
	segment := o.at(start).segment
	for k := o.part; k < len(o.ends) && (k == o.part || o.ends[k-1].offset < end); k++ {
		if o.segments[o.ends[k].segment].Ordinary {
			segment = o.ends[k].segment
			break
		}
	}
	o.ids, o.from = append(o.ids, id), append(o.from, segment)
}

// rest encodes the text between two added tokens: it normalizes it, and finds the added tokens that are searched after
// that.
func (j *joiner) rest(start, stop int) {
	text, goesOn := j.text[start:stop], j.goesOn && start == 0
	o := &owners{joiner: j, ends: make([]end, 0, 4)}
	for k, e := range j.ends {
		from, to := start, min(e.offset, stop)
		if k > 0 {
			from = max(start, j.ends[k-1].offset)
		}
		if from < to {
			o.ends = append(o.ends, end{e.segment, to - start})
		}
	}
	if len(j.t.normalizers) > 0 {
		text = o.normalize(text, !goesOn)
	}
	j.t.normalized.split(text, o.may, func(from, to int) {
		words(j.t.stages, text[from:to], place{at: start + from, cut: goesOn && from == 0}, func(word string, p place) {
			j.tokens = j.encoder.text(word, j.tokens[:0])
			for _, t := range j.tokens {
				if len(o.ends) == 1 { // all is one segment's
					j.ids, j.from = append(j.ids, t.id), append(j.from, o.ends[0].segment)
					continue
				}
				next := p.after(word[:t.width])
				o.own(t.id, p.at-start, next.at-start)
				p, word = next, word[t.width:]
			}
		})
	}, func(from, to int, a AddedToken) { o.own(a.ID, from, to) })
}

// normalize normalizes the text that o divides. Where the meeting of two parts changes the normal form, the parts are
// about where they were, and no markup is found.
func (o *owners) normalize(text string, begins bool) string {
	normal := normalize(o.t.normalizers, text, begins, true)
	last := len(o.ends) - 1
	var joined strings.Builder
	from := 0
	for k := range o.ends {
		to := o.ends[k].offset
		if last > 0 {
			joined.WriteString(normalize(o.t.normalizers, text[from:to], begins && k == 0, k == last))
		}
		from, o.ends[k].offset = to, joined.Len()
	}
	o.ends[last].offset = len(normal)
	o.inexact = last > 0 && joined.String() != normal
	return normal
}
