package settings

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// upper reads its value itself.
type upper string

func (u *upper) DecodeSetting(value any) error {
	text, ok := value.(string)
	if !ok {
		return errors.New("expected a text")
	}
	*u = upper(strings.ToUpper(text))
	return nil
}

type sample struct {
	Top struct {
		Count int        `toml:"count" default:"3" range:"[1,)"`
		Kind  string     `toml:"kind" oneof:"low,high" aliases:"tiny=low" hints:"ppo=high: that is what it is"`
		Sizes [2]float64 `toml:"sizes"`
		Own   []upper    `toml:"own" default:"[\"a\"]"`
		Other string     `toml:"-"`
	} `toml:"top"`
	Rows []struct {
		Name  string           `toml:"name"`
		Width int              `toml:"width" default:"7"`
		Free  map[string]any   `toml:"free"`
		Many  map[string][]int `toml:"many"`
	} `toml:"rows" elements:"width=9"`
}

// TestDocuments decodes the documents of testdata/documents.
func TestDocuments(t *testing.T) {
	datadriven.RunTest(t, "testdata/documents", func(t *testing.T, d *datadriven.TestData) string {
		var document strings.Builder
		var overrides []string
		for line := range strings.Lines(d.Input) {
			if override, is := strings.CutPrefix(line, "> "); is {
				overrides = append(overrides, strings.TrimSpace(override))
			} else {
				document.WriteString(line)
			}
		}
		read := Parse("x.toml", []byte(document.String()))
		for _, o := range overrides {
			read.Override(o)
		}
		var s sample
		read.Decode(&s)
		if err := read.Err(); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("the error is no ErrInvalid: %v", err)
			}
			return err.Error()
		}
		text, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	})
}
