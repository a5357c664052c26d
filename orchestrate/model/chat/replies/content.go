package replies

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// read gives the value of a region's text.
func (p parser) read(text string) (json.RawMessage, error) {
	switch a := &p.Args; p.Name {
	case "json":
		return a.json(text)
	case "xml-inline":
		return a.tags(text)
	case "kv-lines":
		return a.lines(text)
	default:
		if a.strips() {
			text = strings.TrimSpace(text)
		}
		return quote(text), nil
	}
}

// quote writes a text as JSON, as it is.
func quote(text string) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // a text always encodes
	return bytes.TrimSpace(out.Bytes())
}

var bareKey = regexp.MustCompile(`"(?:\\.|[^"\\])*"|([{,]\s*)(\w+)(\s*:)`)

// json reads JSON, with the liberties that a family takes.
func (a *args) json(text string) (json.RawMessage, error) {
	working := text
	var strs []string
	for _, delims := range a.StringDelims {
		between := regexp.MustCompile("(?s)" + regexp.QuoteMeta(delims[0]) + "(.*?)" + regexp.QuoteMeta(delims[1]))
		working = between.ReplaceAllStringFunc(working, func(match string) string {
			strs = append(strs, string(quote(match[len(delims[0]):len(match)-len(delims[1])])))
			return "\x01" + strconv.Itoa(len(strs)-1) + "\x02"
		})
	}
	if a.UnquotedKeys {
		working = bareKey.ReplaceAllStringFunc(working, func(match string) string {
			if m := bareKey.FindStringSubmatch(match); m[2] != "" {
				return m[1] + `"` + m[2] + `"` + m[3]
			}
			return match
		})
	}
	for i, s := range strs {
		working = strings.ReplaceAll(working, "\x01"+strconv.Itoa(i)+"\x02", s)
	}
	working = strings.TrimSpace(working)
	switch {
	case json.Valid([]byte(working)):
		return json.RawMessage(working), nil
	case a.AllowNonJSON:
		return parser{Args: *a}.read(text)
	case a.Separator != "":
		return a.several(working)
	}
	return nil, errors.New("this is no JSON")
}

// several reads values that are parted by the separator as a list.
func (a *args) several(text string) (json.RawMessage, error) {
	var list []string
	for text != "" {
		var one json.RawMessage
		d := json.NewDecoder(strings.NewReader(text))
		if err := d.Decode(&one); err != nil {
			return nil, err
		}
		rest := strings.TrimSpace(text[d.InputOffset():])
		after, parted := strings.CutPrefix(rest, a.Separator)
		if rest != "" && !parted {
			return nil, fmt.Errorf("expected %q between values, got %.40q", a.Separator, rest)
		}
		list, text = append(list, string(one)), strings.TrimSpace(after)
	}
	return listOf(list), nil
}

func listOf(values []string) json.RawMessage {
	return json.RawMessage("[" + strings.Join(values, ", ") + "]")
}

// object is one in the order in which it was written.
type object []member

type member struct {
	key   string
	value json.RawMessage
}

// readObject reads one level of an object.
func readObject(data json.RawMessage) (o object, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, errors.New("expected an object")
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return nil, err
		}
		o.set(key.(string), value)
	}
	return o, nil
}

func (o object) get(key string) json.RawMessage {
	for _, m := range o {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

func (o *object) set(key string, value json.RawMessage) {
	for i := range *o {
		if (*o)[i].key == key {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, member{key, value})
}

func (o object) text() json.RawMessage {
	var all []string
	for _, m := range o {
		all = append(all, string(quote(m.key))+": "+string(m.value))
	}
	return json.RawMessage("{" + strings.Join(all, ", ") + "}")
}

// tags reads an object whose members are written as tags. One that begins and does not end is an error, as its member
// would be lost.
func (a *args) tags(text string) (json.RawMessage, error) {
	o, many, at, between := object{}, map[string][]string{}, 0, ""
	for _, m := range a.tag.FindAllStringSubmatchIndex(text, -1) {
		group := func(name string) string {
			i := 2 * a.tag.SubexpIndex(name)
			return text[max(m[i], 0):max(m[i+1], 0)]
		}
		value, err := a.value(group("value"))
		if err != nil {
			return nil, err
		}
		key := group("key")
		if many[key] = append(many[key], string(value)); a.MergeDuplicates && len(many[key]) > 1 {
			value = listOf(many[key])
		}
		o.set(key, value)
		between += text[at:m[0]]
		at = m[1]
	}
	if begin, _ := a.tag.LiteralPrefix(); begin != "" && strings.Contains(between+text[at:], begin) {
		return nil, fmt.Errorf("a %s does not end", begin)
	}
	return o.text(), nil
}

// value reads a member's text.
func (a *args) value(text string) (json.RawMessage, error) {
	if a.ValueParser == nil {
		return quote(text), nil
	}
	return a.ValueParser.read(text)
}

// lines reads an object with a member a line.
func (a *args) lines(text string) (json.RawMessage, error) {
	o := object{}
	trim := func(s string) string {
		if a.strips() {
			s = strings.TrimSpace(s)
		}
		return s
	}
	for _, line := range strings.Split(text, cmp.Or(a.LineSep, "\n")) {
		key, value, found := strings.Cut(trim(line), cmp.Or(a.KVSep, ":"))
		if !found {
			continue
		}
		read, err := a.value(trim(value))
		if err != nil {
			return nil, err
		}
		o.set(trim(key), read)
	}
	return o.text(), nil
}

// A placeholder is a text of its own in the JSON of a transform, so that JSON can take its place.
var placeholder, within = regexp.MustCompile(`"\{(\w+(?:\.\w+)*)\}"`), regexp.MustCompile(`\{\w+(?:\.\w+)*\}`)

// checkTransform sees that no text of a transform mixes a placeholder with more.
func checkTransform(shape json.RawMessage) error {
	if len(placeholder.FindAll(shape, -1)) != len(within.FindAll(shape, -1)) {
		return fmt.Errorf("transform = %.80s has a text with more than a placeholder", shape)
	}
	return nil
}

// transform fills the placeholders of a shape.
func transform(shape json.RawMessage, scope object) (filled json.RawMessage, err error) {
	filled = placeholder.ReplaceAllFunc(shape, func(found []byte) []byte {
		value, problem := lookUp(string(found[2:len(found)-2]), scope)
		err = errors.Join(err, problem)
		return value
	})
	return filled, err
}

func lookUp(path string, scope object) (value json.RawMessage, err error) {
	for _, key := range strings.Split(path, ".") {
		if value = scope.get(key); value == nil {
			return nil, fmt.Errorf("there is no %s for {%s}", key, path)
		}
		scope, _ = readObject(value) // what is no object has no members
	}
	return value, nil
}

// value is that of a whole region.
func (f *field) value(body string, groups map[string]string) (json.RawMessage, error) {
	value, err := parser{f.spec.Content, f.spec.Args}.read(body)
	if err != nil || !f.transforms() {
		return value, err
	}
	scope := object{}
	for name, text := range groups {
		scope.set(name, quote(text))
	}
	if !f.spec.TransformEach {
		scope.set("content", value)
		return transform(f.spec.Transform, scope)
	}
	var items []json.RawMessage
	if json.Unmarshal(value, &items) != nil {
		items = []json.RawMessage{value} // some forget the list around one
	}
	var list []string
	for _, item := range items {
		members, err := readObject(item)
		if err != nil {
			return nil, err
		}
		each := append(object{}, scope...)
		for _, m := range members {
			each.set(m.key, m.value)
		}
		one, err := transform(f.spec.Transform, each)
		if err != nil {
			return nil, err
		}
		list = append(list, string(one))
	}
	return listOf(list), nil
}
