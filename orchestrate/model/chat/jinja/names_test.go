package jinja

import (
	"slices"
	"testing"
)

// The names that a template reads are those of its expressions, and not its texts.
func TestNames(t *testing.T) {
	template, err := Compile(`about {{ m.thinking }}{{ m['plan'] }}{% if 'documents' in m and 'x' not in m %}{{ m.get('tool') }}` +
		`{% endif %}{{ enable_thinking | default(true) }}{{ 'said' }}{{ m | map(attribute='date') }}{# m.comment #}`)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"date", "documents", "get", "plan", "thinking", "tool", "x"}; !slices.Equal(template.Attributes, want) {
		t.Errorf("attributes %q, want %q", template.Attributes, want)
	}
	for name, read := range map[string]bool{"m": true, "enable_thinking": true, "thinking": false, "said": false, "comment": false} {
		if slices.Contains(template.Variables, name) != read {
			t.Errorf("variables %q: %s", template.Variables, name)
		}
	}
}
