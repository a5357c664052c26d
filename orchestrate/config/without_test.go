package config

import (
	"strings"
	"testing"
)

func TestWithout(t *testing.T) {
	for text, covered := range map[string]bool{"env=Sokoban": true, "env=Bandit": false, "row=a@b": false, "row=level 3": true,
		"group=7": true, "group=70": false, "group=7@12": true, "group=7@13": false, "env=Sokoban@12": true,
		"env=Sokoban@1": false} {
		w, err := ParseWithout(text)
		if text == "row=a@b" {
			if err == nil || !strings.Contains(err.Error(), "expected a step") {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil || w.Covers(12, 7, "Sokoban", "level 3") != covered || w.String() != text {
			t.Errorf("%s: %+v, %v, %v", text, w, w.Covers(12, 7, "Sokoban", "level 3"), err)
		}
	}
	for _, text := range []string{"", "group", "group=", "group=x", "steps=3", "group=7@0", "group=7@x", "Group=7"} {
		if w, err := ParseWithout(text); err == nil {
			t.Errorf("%q is read as %+v", text, w)
		}
	}
	_, err := Parse("x.toml", []byte("[model]\npath='m'\n[[envs]]\ntag='Bandit'\n[filter]\nwithout=['group=x']"), nil)
	if err == nil || !strings.Contains(err.Error(), "filter.without") {
		t.Error(err)
	}
}
