package replies

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Template says how the replies of a family of models are written: transformers' response_template.
type Template struct {
	anchor *pattern
	fields []*field // by name
	rest   *field   // takes what no other field does; nil: nobody
}

// Kind is what a part of a reply is.
type Kind int

// The kinds. What stands in other fields of a template belongs to no message and is left out.
const (
	Other Kind = iota
	Thinking
	Content
	Calls
)

var kinds = map[string]Kind{"content": Content, "reasoning_content": Thinking, "thinking": Thinking,
	"reasoning": Thinking, "tool_calls": Calls}

// field is a region of a reply.
type field struct {
	name        string
	kind        Kind
	open, close *pattern // nil: none
	spec        fieldSpec
}

// fieldSpec is a field as templates write it.
type fieldSpec struct {
	Open          texts           `json:"open"`
	OpenPattern   *string         `json:"open_pattern"`
	Close         texts           `json:"close"`
	ClosePattern  *string         `json:"close_pattern"`
	Content       string          `json:"content"`
	Args          args            `json:"content_args"`
	Repeats       bool            `json:"repeats"`
	Join          string          `json:"join"`
	Optional      bool            `json:"optional"`
	Transform     json.RawMessage `json:"transform"`
	TransformEach bool            `json:"transform_each"`
}

// args are those of the ways to read a region.
type args struct {
	Strip           *bool       `json:"strip"`
	TagPattern      string      `json:"tag_pattern"`
	ValueParser     *parser     `json:"value_parser"`
	MergeDuplicates bool        `json:"merge_duplicates"`
	LineSep         string      `json:"line_sep"`
	KVSep           string      `json:"kv_sep"`
	UnquotedKeys    bool        `json:"unquoted_keys"`
	StringDelims    [][2]string `json:"string_delims"`
	AllowNonJSON    bool        `json:"allow_non_json"`
	Separator       string      `json:"separator"` // of several values; not of transformers

	tag *regexp.Regexp
}

type parser struct {
	Name string `json:"name"`
	Args args   `json:"args"`
}

// texts are one or several.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*t = texts{one}
		return nil
	}
	if err := json.Unmarshal(data, (*[]string)(t)); err != nil || len(*t) == 0 {
		return fmt.Errorf("expected a text or a list of texts, got %.60s", data)
	}
	return nil
}

// Parse reads a response_template.
func Parse(data []byte) (*Template, error) {
	t := &Template{}
	return t, json.Unmarshal(data, t)
}

// UnmarshalJSON reads a response_template.
func (t *Template) UnmarshalJSON(data []byte) error {
	file := struct {
		Version       int                  `json:"version"`
		Defaults      map[string]any       `json:"defaults"`
		Anchor        texts                `json:"start_anchor"`
		AnchorPattern *string              `json:"start_anchor_pattern"`
		Fields        map[string]fieldSpec `json:"fields"`
	}{Version: 1}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return err
	}
	if file.Version != 1 || len(file.Fields) == 0 {
		return fmt.Errorf("expected version 1 and fields, got version %d and %d fields", file.Version,
			len(file.Fields))
	}
	var err error
	if t.anchor, err = delimiter(file.Anchor, file.AnchorPattern); err == nil && t.anchor == nil {
		err = errors.New("expected one")
	}
	if err != nil {
		return fmt.Errorf("start_anchor: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(file.Fields)) {
		f, err := newField(name, file.Fields[name])
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
		if t.fields = append(t.fields, f); f.open != nil {
			continue
		}
		if t.rest != nil {
			return fmt.Errorf("neither %s nor %s says how it opens: expected one such field", t.rest.name, name)
		}
		t.rest = f
	}
	return nil
}

// delimiter is one that is written as texts or as a pattern; nil: there is none.
func delimiter(literal texts, expression *string) (*pattern, error) {
	switch {
	case literal != nil && expression != nil:
		return nil, errors.New("expected a text or a pattern, got both")
	case literal != nil:
		return compile(literals(literal))
	case expression != nil:
		return compile(*expression)
	}
	return nil, nil
}

// newField checks and compiles a field. A name may end with a dot and more: several fields then fill one.
func newField(name string, spec fieldSpec) (*field, error) {
	base, _, _ := strings.Cut(name, ".")
	f := &field{name: name, kind: kinds[base], spec: spec}
	var problems [4]error
	f.open, problems[0] = delimiter(spec.Open, spec.OpenPattern)
	f.close, problems[1] = delimiter(spec.Close, spec.ClosePattern)
	problems[2], problems[3] = f.spec.Args.check(spec.Content), checkTransform(spec.Transform)
	return f, errors.Join(problems[:]...)
}

// check sees that there is such a way to read a region, and compiles what it needs.
func (a *args) check(content string) (err error) {
	known := []string{"", "text", "int", "float", "bool", "json", "xml-inline", "kv-lines"}
	if !slices.Contains(known, content) {
		return fmt.Errorf("content = %q is not supported, expected one of %q", content, known[1:])
	}
	if content == "xml-inline" {
		if a.tag, err = regexp.Compile("(?s)" + a.TagPattern); err != nil {
			return fmt.Errorf("tag_pattern: %w (patterns are Go's, which have no look-around)", err)
		}
		if a.tag.SubexpIndex("key") < 0 || a.tag.SubexpIndex("value") < 0 {
			return fmt.Errorf("tag_pattern = %q, expected groups key and value", a.TagPattern)
		}
	}
	if a.ValueParser != nil {
		return a.ValueParser.Args.check(a.ValueParser.Name)
	}
	return nil
}

// streams tells whether the text of a region is its value, so that it can be passed on before the region closes.
func (f *field) streams() bool {
	return slices.Contains([]string{"", "text"}, f.spec.Content) && !f.transforms()
}

func (f *field) transforms() bool {
	return f.spec.Transform != nil && string(f.spec.Transform) != "null"
}

// strips tells whether white space at the ends of a region means nothing.
func (a *args) strips() bool { return a.Strip == nil || *a.Strip }

// opening is what a prompt has begun of the reply: what follows the last anchor, or else an opening delimiter that the
// prompt ends with.
func (t *Template) opening(prompt string) string {
	if all := t.anchor.find.FindAllStringIndex(prompt, -1); all != nil {
		return prompt[all[len(all)-1][1]:]
	}
	for _, f := range t.fields {
		if f.open == nil {
			continue
		}
		if at := f.open.last.FindStringIndex(prompt); at != nil {
			return prompt[at[0]:]
		}
	}
	return ""
}
