package settings

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
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
