package settings

import (
	"errors"
	"strings"
	"testing"
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

func decode(t *testing.T, text string, overrides ...string) (sample, error) {
	t.Helper()
	d := Parse("x.toml", []byte(text))
	for _, o := range overrides {
		d.Override(o)
	}
	var s sample
	d.Decode(&s)
	return s, d.Err()
}

func TestDefaultsDocumentAndOverrides(t *testing.T) {
	s, err := decode(t, "[top]\nkind = 'Tiny'\n[[rows]]\nfree = {a = 1}\nmany = {x = [1, 2]}\n", "rows.1.name=2024",
		"rows.0.free.b=x", `top.own=["b", 'c']`)
	if err != nil {
		t.Fatal(err)
	}
	if s.Top.Count != 3 || s.Top.Kind != "low" || len(s.Top.Own) != 2 || s.Top.Own[1] != "C" || len(s.Rows) != 2 ||
		s.Rows[0].Width != 9 ||
		s.Rows[1].Name != "2024" || s.Rows[0].Free["b"] != "x" || s.Rows[0].Many["x"][1] != 2 {
		t.Errorf("%+v", s)
	}
}

// A statement is found by its first line, in tables that come several times and behind values of several lines.
func TestLines(t *testing.T) {
	text := "# a comment\n[top]\nsizes = [1, # one\n  'two']\n[[rows]]\nname = '''a\n[top]\n'''\nwidth = " +
		"'x'\n\n[[rows]]\nname = 3\nfree = {a = 1}\nmany = { y = [1], x = 4 }\nnmae = 1\n"
	_, err := decode(t, text)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"x.toml:3: top.sizes.1:", "x.toml:9: rows.0.width:", "x.toml:12: rows.1.name:",
		"x.toml:14: rows.1.many.x:",
		"x.toml:15: rows.1.nmae: unknown key (did you mean name?)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in\n%v", want, err)
		}
	}
}

func TestProblemsSayWhatIsMeant(t *testing.T) {
	for override, want := range map[string]string{
		"top.kind=ppo":     "did you mean high: that is what it is?",
		"top.kind=hihg":    "did you mean high?",
		"top.own=a":        `a list is written ["a"], on a command line 'top.own=["a"]'`,
		"top.own=[1]":      "top.own.0: expected a text",
		"top.count=0":      "expected an integer >= 1, got 0",
		"count=1":          "count belongs to [top]",
		"top.Other=1":      "unknown key",
		"rows.5.name=x":    "rows has 0 elements",
		"top.count.deep=1": "expected an integer, got a table",
	} {
		if _, err := decode(t, "", override); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), override) {
			t.Errorf("%s: %v, want %q", override, err, want)
		}
	}
}
