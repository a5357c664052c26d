package config

import (
	"slices"
	"strings"
	"testing"
)

const minimal = "[model]\npath = \"m\"\n[[envs]]\ntag = \"sokoban\"\n"

// Parts are reported in the order in which they are weighted, also by a run that reads its resolved configuration
// again.
func TestComponentsKeepTheOrderOfTheirWeights(t *testing.T) {
	for document, want := range map[string][]string{
		"[components]\nweights = { length = 0.33, correctness = 0.34, format = 0.33 }": {"length", "correctness",
			"format"},
		"[components.weights]\nz = 1\na = 2.5":                             {"z", "a"},
		"[components]\nnames = [\"b\", \"a\", \"c\"]\nweights = { a = 1 }": {"b", "a", "c"},
		"": nil,
	} {
		c, err := Parse("c.toml", []byte(minimal+document), nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Resolved(c)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Parse("c.toml", again, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, again)
		}
		if !slices.Equal(c.Components.Names, want) || !slices.Equal(d.Components.Names, want) ||
			len(c.Components.Weights) != len(d.Components.Weights) {
			t.Errorf("%q: names %v, after resolving %v with %v, want %v", document, c.Components.Names,
				d.Components.Names, d.Components.Weights, want)
		}
	}
	c, err := Parse("c.toml", []byte(minimal), []string{"components.weights.b=2", "components.weights.a=0.5"})
	if err != nil || !slices.Equal(c.Components.Names, []string{"a", "b"}) || c.Components.Weights["b"] != 2 {
		t.Errorf("overrides: %+v, %v", c, err)
	}
}

// Switching the measurement off leaves tracking, whatever the rest of the section says of the measurement.
func TestComponentsSwitchedOffLeaveTracking(t *testing.T) {
	c, err := Parse("c.toml", []byte(minimal+"[components]\nenabled = true\nsave = \"projection\"\nweights = { a = 1 "+
		"}\ntracking = true"), []string{"components.enabled=false"})
	if err != nil || c.Components.Enabled || !c.Components.Tracking {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestComponentsThatCannotWork(t *testing.T) {
	for document, want := range map[string]string{
		`names = ["a", "b", "a"]`:              `"a" is named twice`,
		`names = ["a/b"]`:                      "without slashes",
		`names = ["total"]`:                    "no part can have this name",
		`names = ["baseline"]`:                 "no part can have this name",
		"names = [\"a\"]\nweights = { b = 1 }": "components.weights.b",
		`weights = { a = "much" }`:             "components.weights.a: expected a number",
		`data = "../x"`:                        "folder",
		`mode = "exac"`:                        "exact",
		"enabled = true\n[[envs]]\ngroup_size = 1\ntag=\"bandit\"": "group_size = 1",
	} {
		_, err := Parse("c.toml", []byte(minimal+"[components]\n"+document), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", document, err, want)
		}
	}
}
