package replies

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Part is a piece of a reply: more of what was thought or said, or a call.
type Part struct {
	Kind Kind
	Text string // of Thinking and Content
	Call Call   // of Calls
}

// Reply is what parts say together.
type Reply struct {
	Thinking, Content string
	Calls             []Call
}

// Add takes parts in.
func (r *Reply) Add(parts []Part) {
	for _, p := range parts {
		switch p.Kind {
		case Thinking:
			r.Thinking += p.Text
		case Content:
			r.Content += p.Text
		case Calls:
			r.Calls = append(r.Calls, p.Call)
		}
	}
}

// Reader takes a reply apart as it grows. It is for one goroutine.
type Reader struct {
	// Malformed counts the calls that could not be read. They stay text.
	Malformed int

	template *Template
	offered  offered
	calls    bool // are read

	text []byte // all of it
	at   int    // what is before is read
	seen int    // what is before was searched
	from int    // where the reply begins behind what the prompt has opened
	to   int    // where it ends before the token that ends it; what is beyond is read for delimiters alone

	watched []*mark
	current *field // whose region it is; nil: nobody's
	opened  bool
	open    region

	space Part // white space that is passed on once more is said
	last  Kind // of what was passed on
	said  map[string]bool
	spoke bool // content was passed on
	// A delimiter was taken for a part of JSON and was none: it does not happen again, as each time costs a second look
	// at all the rest.
	doubted bool
	out     []Part
}

// region is what is open.
type region struct {
	begin   int // of its delimiter
	groups  map[string]string
	started bool // text was passed on
	value   nesting
	doubt   int // the end of the first delimiter that stood inside of JSON; 0: none
}

// mark is a delimiter that counts now.
type mark struct {
	*search
	field *field
	opens bool
}

// New begins a reply to a prompt. Without tools, calls are text.
func (t *Template) New(prompt string, tools []Tool) *Reader {
	r := &Reader{template: t, offered: offer(tools), calls: len(tools) > 0, said: map[string]bool{}}
	r.idle()
	r.grow(t.opening(prompt))
	r.process(false)
	r.from, r.out, r.said, r.space, r.last, r.spoke = len(r.text), nil, map[string]bool{}, Part{}, Other, false
	r.open.started, r.Malformed = false, 0
	return r
}

// Add gives what is certain once text follows.
func (r *Reader) Add(text string) []Part {
	r.grow(text)
	r.process(false)
	return r.take()
}

func (r *Reader) grow(text string) {
	r.text = append(r.text, text...)
	r.to = len(r.text)
}

// Finish gives the rest. ending is the text of the token that ended the reply, which closes regions and says nothing.
func (r *Reader) Finish(ending string) []Part {
	r.text = append(r.text, ending...)
	r.process(true)
	if r.last == Content || r.last == Other {
		r.pass(Content, r.space.Text)
	}
	return r.take()
}

func (r *Reader) take() []Part {
	parts := r.out
	r.out = nil
	return parts
}

// idle is the state outside of all regions that have an opening delimiter.
func (r *Reader) idle() {
	r.current, r.opened, r.open = r.template.rest, false, region{begin: r.at, groups: map[string]string{}}
	r.watched = nil
	for _, f := range r.template.fields {
		if f.open != nil && (f.kind != Calls || r.calls) {
			r.watched = append(r.watched, &mark{f.open.search(), f, true})
		}
	}
	r.watch(r.current)
}

// watch waits for the end of a field, from here on.
func (r *Reader) watch(f *field) {
	if r.seen = r.at; f != nil && f.close != nil {
		r.watched = append(r.watched, &mark{f.close.search(), f, false})
	}
}

// process reads as far as it is certain what the text is; ended says that no more follows.
func (r *Reader) process(ended bool) {
	for {
		if r.endsWithValue() {
			continue
		}
		r.search(ended)
		next, until := r.next()
		if next == nil {
			if r.pour(until); ended {
				r.close(until, nil)
			}
			if !ended || r.at == len(r.text) {
				return
			}
			continue
		}
		r.pour(next.begin)
		switch {
		case next.opens:
			r.close(next.begin, nil)
			r.begin(next)
		case r.opened && !r.doubted && next.field.nested(&r.open):
			if r.open.doubt == 0 {
				r.open.doubt = next.end
			}
			r.pour(next.end)
			r.watched = nil
			r.watch(r.current)
		default:
			r.at = next.end
			r.close(next.end, next.groups(string(r.text[next.begin:next.end])))
		}
	}
}

// search looks at what is new.
func (r *Reader) search(ended bool) {
	for ; r.seen <= len(r.text); r.seen++ {
		if r.seen < len(r.text) && !utf8.RuneStart(r.text[r.seen]) {
			continue
		}
		before, after := around(r.text, r.seen)
		if after < 0 && !ended {
			break
		}
		for _, w := range r.watched {
			w.step(r.seen, before, after)
		}
	}
	r.seen = min(r.seen, len(r.text))
}

// next is the delimiter that comes next: the first, of several the longest. Where there is none yet, the text up to
// until is certain to belong to the region.
func (r *Reader) next() (best *mark, until int) {
	until = len(r.text)
	for _, w := range r.watched {
		if from, yes := w.pending(); yes {
			until = min(until, from)
			continue
		}
		if w.end < 0 || w.begin == w.end && !r.opened {
			continue
		}
		if best == nil || w.begin < best.begin || w.begin == best.begin && w.end > best.end {
			best = w
		}
	}
	if best != nil && best.begin >= until && until < len(r.text) {
		best = nil
	}
	return best, until
}

// pour gives the text up to a place to the region that is open.
func (r *Reader) pour(to int) {
	text := string(r.text[min(r.at, r.to):min(to, r.to)])
	r.at = to
	f := r.current
	if f == nil || text == "" {
		return
	}
	if !r.opened {
		r.enter(f)
	}
	if !f.streams() {
		r.open.value.add(text)
		return
	}
	if f.spec.Args.strips() || f.kind == Thinking {
		if !r.open.started {
			text = strings.TrimLeftFunc(text, unicode.IsSpace)
		}
		r.open.started = r.open.started || text != ""
	}
	r.say(f.kind, text)
}

// enter begins a region.
func (r *Reader) enter(f *field) {
	r.opened = true
	if r.said[f.name] && f.spec.Join != "" && f.streams() {
		r.say(f.kind, f.spec.Join)
	}
	r.said[f.name] = true
}

// say passes text on, but for white space at its end, which means nothing beside a call or what was thought.
func (r *Reader) say(kind Kind, text string) {
	if kind == Other {
		return
	}
	if kind != r.last && r.last != Other && (r.last != Calls || !r.spoke) {
		r.space, text = Part{}, strings.TrimLeftFunc(text, unicode.IsSpace)
	}
	if r.space.Kind == kind {
		text = r.space.Text + text
	}
	certain := strings.TrimRightFunc(text, unicode.IsSpace)
	r.space = Part{Kind: kind, Text: text[len(certain):]}
	r.pass(kind, certain)
}

func (r *Reader) pass(kind Kind, text string) {
	if text == "" {
		return
	}
	r.last, r.spoke = kind, r.spoke || kind == Content
	if n := len(r.out); n > 0 && r.out[n-1].Kind == kind {
		r.out[n-1].Text += text
		return
	}
	r.out = append(r.out, Part{Kind: kind, Text: text})
}

// begin opens the region of a delimiter. Its group "content" is where the region begins already.
func (r *Reader) begin(w *mark) {
	r.at = w.end
	groups := w.groups(string(r.text[w.begin:w.end]))
	r.current = w.field
	r.open = region{begin: w.begin, groups: groups}
	r.open.value.add(groups["content"])
	delete(groups, "content")
	r.enter(w.field)
	r.watched = nil
	r.watch(w.field)
}

// close ends the region that is open at a place behind its delimiter, whose groups join those of the opening one.
func (r *Reader) close(end int, groups map[string]string) {
	f := r.current
	if f == nil || !r.opened {
		r.idle()
		return
	}
	for name, text := range groups {
		r.open.groups[name] = text
	}
	if f.streams() {
		if f.spec.Args.strips() || f.kind == Thinking {
			r.space = Part{}
		}
	} else if value, err := f.value(string(r.open.value.text), r.open.groups); err != nil || !r.give(f, value) {
		r.refuse(f, end)
	}
	r.idle()
}

// give passes a region's value on, if it is one for its field.
func (r *Reader) give(f *field, value json.RawMessage) bool {
	if f.kind != Calls {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		r.say(f.kind, text)
		return true
	}
	calls, err := r.offered.calls(value)
	for _, call := range calls {
		r.out = append(r.out, Part{Kind: Calls, Call: call})
		r.last, r.space = Calls, Part{}
	}
	return err == nil
}

// refuse lets a region that cannot be read be text, delimiters included. One in which a delimiter was taken for a part
// of JSON was over there.
func (r *Reader) refuse(f *field, end int) {
	if r.open.doubt > 0 {
		end = r.open.doubt
		r.at, r.doubted = end, true
	}
	if f.kind == Calls {
		r.Malformed++
	}
	if begin, end := max(r.open.begin, r.from), min(end, r.to); begin < end {
		r.say(Content, string(r.text[begin:end]))
	}
}
