package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"gyre/internal/nearest"
)

// pairs reads a tag of the form "a=b,c=d".
func pairs(tag reflect.StructTag, name string) map[string]string {
	out := map[string]string{}
	if text := tag.Get(name); text != "" {
		for _, pair := range strings.Split(text, ",") {
			key, value, _ := strings.Cut(pair, "=")
			out[key] = value
		}
	}
	return out
}

// canonical returns the legal value that text spells. Case and - or _ do not matter, and a spelling's + stands behind
// its value too.
func canonical(text string, legal []string, aliases map[string]string) (string, bool) {
	folded := fold(text)
	base, plus := strings.CutSuffix(folded, "+")
	switch {
	case aliases[folded] != "":
		folded = aliases[folded]
	case plus && aliases[base] != "":
		folded = aliases[base] + "+"
	}
	for _, value := range legal {
		if fold(value) == fold(folded) {
			return value, true
		}
	}
	return "", false
}

func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "-", "_")
}

// bounds reads an interval: [ and ] include the limit, ( and ) exclude it, an empty upper limit is infinity.
func bounds(interval string) (low, high float64, lowIn, highIn bool) {
	from, to, _ := strings.Cut(interval[1:len(interval)-1], ",")
	low, _ = strconv.ParseFloat(from, 64)
	high = math.Inf(1)
	if to != "" {
		high, _ = strconv.ParseFloat(to, 64)
	}
	return low, high, interval[0] == '[', interval[len(interval)-1] == ']'
}

func within(x float64, interval string) bool {
	low, high, lowIn, highIn := bounds(interval)
	return (x > low || lowIn && x == low) && (x < high || highIn && x == high)
}

// spell writes an interval in words: ">= 0", "> 0 and <= 1".
func spell(interval string) string {
	low, high, lowIn, highIn := bounds(interval)
	write := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
	text := "> " + write(low)
	if lowIn {
		text = ">= " + write(low)
	}
	switch {
	case math.IsInf(high, 1):
		return text
	case highIn:
		return text + " and <= " + write(high)
	}
	return text + " and < " + write(high)
}

// readsItself reports whether values of a type are read by the type, whatever they look like.
func readsItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[Decoder]())
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a table"
	case reflect.Slice:
		if readsItself(t.Elem()) {
			return "a list"
		}
		switch t.Elem().Kind() {
		case reflect.String:
			return "a list of strings"
		case reflect.Interface:
			return "a list of values"
		}
		return "a list of tables"
	case reflect.Array:
		return fmt.Sprintf("a list of %d numbers", t.Len())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "an integer"
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case string:
		return fmt.Sprintf("the string %q", v)
	case int, int64:
		return fmt.Sprintf("the integer %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprint(v)
	case map[string]any:
		return "a table"
	}
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
		return fmt.Sprintf("a list of %d", list.Len())
	}
	return fmt.Sprintf("%v", v)
}

// ErrInvalid is what every *Error matches with errors.Is.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one thing that is wrong with a document.
type Problem struct {
	File     string
	Line     int    // 1-based line in file; 0 = none (a key that is missing, an override)
	Text     string // that line
	Override string // the override that set the key, instead of a line
	Key      string // dotted, elements by index: envs.0.tag
	Message  string
}

func (p Problem) String() string {
	text := p.File + ": "
	switch {
	case p.Override != "":
		text = fmt.Sprintf("override %q: ", p.Override)
	case p.Line > 0:
		text = fmt.Sprintf("%s:%d: ", p.File, p.Line)
	}
	if p.Key != "" {
		text += p.Key + ": "
	}
	text += p.Message
	if p.Text != "" {
		text += fmt.Sprintf("\n    %d | %s", p.Line, printable(p.Text))
	}
	return text
}

// printable is a line of a file that may hold anything, such as the control sequences of a terminal.
func printable(line string) string {
	const limit = 160
	var b strings.Builder
	for i, r := range line {
		if i >= limit {
			return b.String() + "…"
		}
		if r != '\t' && !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Error lists everything that is wrong with a document.
type Error struct{ Problems []Problem }

func newError(problems []Problem) *Error {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Override, b.Override), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	return &Error{problems}
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	text := fmt.Sprintf("%d problems with the configuration:", len(e.Problems))
	for _, p := range e.Problems {
		text += "\n  " + strings.ReplaceAll(p.String(), "\n", "\n  ")
	}
	return text
}

// Is makes every error of this package match ErrInvalid.
func (e *Error) Is(target error) bool { return target == ErrInvalid }

// Unreadable is the error for a file that cannot be read; where it does not exist, it names a file beside it that may
// have been meant.
func Unreadable(file string, err error) error {
	hint := ""
	if errors.Is(err, fs.ErrNotExist) {
		// a bad pattern finds nothing
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*"+filepath.Ext(file)))
		hint = nearest.Hint(file, beside)
	}
	return newError([]Problem{{File: file, Message: fmt.Sprintf("cannot be read: %v%s", err, hint)}})
}
