package versions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A schedule that lacks steps which the checkpoint has done is not continued.
func TestOpenWantsTheStepsThatAreDone(t *testing.T) {
	const one, two, three = `{"step":1,"changed":1.5}` + "\n", `{"step":2,"changed":2.5}` + "\n", `{"step":3,"changed":3.5}` + "\n"
	for name, c := range map[string]struct {
		text        string
		first, done int
		last        float64
		left, want  string
	}{
		"new":                {"-", 1, 0, 0, "", ""},
		"whole":              {one + two, 1, 2, 2.5, one + two, ""},
		"steps done again":   {one + two + three, 1, 2, 2.5, one + two, ""},
		"from a checkpoint":  {"-", 3, 2, 0, "", ""},
		"further from it":    {two + three, 2, 3, 3.5, two + three, ""},
		"missing":            {"-", 1, 2, 0, "", "lacks steps 1 to 2"},
		"empty":              {"", 1, 2, 0, "", "lacks steps 1 to 2"},
		"cut at a line":      {one, 1, 3, 0, one, "lacks steps 2 to 3"},
		"cut within a line":  {one + two[:9], 1, 2, 0, one + two[:9], "lacks steps 2 to 2"},
		"without its begin":  {two, 1, 2, 0, two, "lacks steps 1 to 2"},
		"of steps done anew": {one + two, 1, 0, 0, "", ""},
	} {
		path := filepath.Join(t.TempDir(), File)
		if c.text != "-" {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		file, last, err := Open(path, c.first, c.done)
		if err == nil {
			file.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || last != c.last {
			t.Errorf("%s: %v, %v; want %v, %q", name, last, err, c.last, c.want)
		}
		if left, _ := os.ReadFile(path); string(left) != c.left {
			t.Errorf("%s: %q is left, want %q", name, left, c.left)
		}
	}
}
