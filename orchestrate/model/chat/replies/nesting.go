package replies

import "bytes"

// nesting follows the text of a region that is read when it closes, and knows where JSON in it ends.
type nesting struct {
	text    []byte
	depth   int
	inText  bool
	escaped bool
	over    bool // the value has ended
}

// add takes text in.
func (n *nesting) add(text string) {
	for i := range len(text) {
		n.byte(text[i])
	}
}

func (n *nesting) byte(b byte) {
	n.text = append(n.text, b)
	switch {
	case n.escaped:
		n.escaped = false
	case n.inText:
		n.escaped, n.inText = b == '\\', b != '"'
	case b == '"':
		n.inText = true
	case b == '{' || b == '[':
		n.depth++
	case b == '}' || b == ']':
		n.depth--
		n.over = n.over || n.depth == 0
	}
}

// exact tells whether a field is JSON as it is defined, so that its end can be seen.
func (f *field) exact() bool {
	return f.spec.Content == "json" && len(f.spec.Args.StringDelims) == 0 && !f.spec.Args.AllowNonJSON &&
		f.spec.Args.Separator == ""
}

// nested tells whether a delimiter now would stand inside of a text in JSON.
func (f *field) nested(open *region) bool {
	begun := bytes.TrimSpace(open.value.text)
	return f.exact() && open.value.inText && open.value.depth > 0 && (begun[0] == '{' || begun[0] == '[')
}

// endsWithValue closes a region of JSON that has no closing delimiter once its value is complete.
func (r *Reader) endsWithValue() bool {
	f := r.current
	if f == nil || !r.opened || f.open == nil || f.close != nil || !f.exact() {
		return false
	}
	for r.at < r.to && !r.open.value.over {
		r.open.value.byte(r.text[r.at])
		r.at++
	}
	if r.open.value.over {
		r.close(r.at, nil)
	}
	return r.open.value.over
}
