package nearest

import "testing"

func TestMatch(t *testing.T) {
	names := []string{"groups", "group_size", "max_turns", "max_actions", "include_zero", "train", "tokenize"}
	for word, want := range map[string]string{
		"gropus": "groups", "group-size": "group_size", "Max_Turn": "max_turns", "incldue_zero": "include_zero",
		"trian": "train", "tokenise": "tokenize", "zebra": "", "": "",
	} {
		if got, ok := Match(word, names); got != want || ok != (want != "") {
			t.Errorf("Match(%q) = %q, %v, want %q", word, got, ok, want)
		}
	}
	if got := Hint("trian", names); got != " (did you mean train?)" {
		t.Errorf("Hint = %q", got)
	}
	if got := Hint("zebra", names); got != "" {
		t.Errorf("Hint for a stranger = %q", got)
	}
}
