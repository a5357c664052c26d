package child

import (
	"fmt"
	"testing"
)

func TestKeepsTheLastWords(t *testing.T) {
	w := KeepWords(8)
	for _, c := range []struct{ write, want string }{
		{"", ""},
		{" \n", ""},
		{"one\n", "said: one"},
		{"two\n", "said: one\ntwo"},
		{"x", "said: ne\ntwo\nx"},
		{"longer than all of it", "said: ll of it"},
	} {
		if n, err := fmt.Fprint(w, c.write); n != len(c.write) || err != nil {
			t.Errorf("writing %q: %d, %v", c.write, n, err)
		}
		if got := w.After("said: "); got != c.want {
			t.Errorf("after %q: %q, want %q", c.write, got, c.want)
		}
	}
}
