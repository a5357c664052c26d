package metrics

import (
	"bytes"
	"iter"
	"strconv"
)

// Raw is the line of a step as it stands in a file. Whoever shows a few numbers of thousands of lines finds them here
// in a hundredth of the time that decoding takes. It expects what Encode wrote, or a row of a W&B history.
type Raw []byte

// Step is the line's step; false where it has none.
func (r Raw) Step() (int, bool) {
	for _, name := range []string{"step", "_step"} {
		for found, v := range r.Numbers(name) {
			if found == name {
				return int(v), true
			}
		}
	}
	return 0, false
}

// Numbers are the finite numbers of the metrics whose names begin with prefix. A quotation mark within a text is
// escaped, so that one behind a comma or a brace, with a colon behind the next, is that of a name.
func (r Raw) Numbers(prefix string) iter.Seq2[string, float64] {
	begin := append([]byte{'"'}, prefix...)
	return func(yield func(string, float64) bool) {
		for rest := r; ; {
			at := bytes.Index(rest, begin)
			if at < 0 {
				return
			}
			before := bytes.TrimRight(rest[:at], " ")
			rest = rest[at+1:]
			end := bytes.IndexByte(rest, '"')
			if end < 0 {
				return
			}
			after, isName := bytes.CutPrefix(bytes.TrimLeft(rest[end+1:], " "), []byte{':'})
			if !isName || len(before) == 0 || before[len(before)-1] != ',' && before[len(before)-1] != '{' {
				continue
			}
			text := bytes.TrimSpace(after[:max(bytes.IndexAny(after, ",}"), 0)])
			if v, err := strconv.ParseFloat(string(text), 64); err == nil && finite(v) &&
				!yield(string(rest[:end]), v) {
				return
			}
			rest = rest[end+1:]
		}
	}
}

// finite leaves out what Python writes for numbers that JSON lacks.
func finite(v float64) bool { return v-v == 0 }
