package lines

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestReadAndContinue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "file")
	for _, err := range Read(path) {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	write := func(end int64, text string) {
		t.Helper()
		file, err := Continue(path, end, 0o600)
		if err == nil {
			_, err = file.WriteString(text)
		}
		if err = errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write(0, "one\r\n\n two \nthr")
	var texts []string
	var kept int64
	for l, err := range Read(path) {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(l.Text))
		if l.Torn != (len(texts) == 4) {
			t.Errorf("line %d is torn: %v", len(texts), l.Torn)
		}
		if kept = l.From; len(texts) == 3 {
			if text := l.Fault(errors.New("bad")).Error(); text != path+":3: bad" {
				t.Error(text)
			}
		}
	}
	if len(texts) != 4 || texts[0] != "one" || texts[1] != "" || texts[2] != "two" || texts[3] != "thr" {
		t.Errorf("%q", texts)
	}
	write(kept, "three\n")
	if text, err := os.ReadFile(path); err != nil || string(text) != "one\r\n\n two \nthree\n" {
		t.Errorf("%q, %v", text, err)
	}
}
