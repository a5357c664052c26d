package tail

import (
	"bytes"
	"strings"
	"sync"
)

// Writer keeps the last bytes of what is written to it. It is safe for concurrent use.
type Writer struct {
	most int
	mu   sync.Mutex
	text []byte
}

// New returns a writer that keeps at most so many bytes.
func New(most int) *Writer { return &Writer{most: most} }

func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	if over := len(w.text) - w.most; over > 0 {
		w.text = bytes.Clone(w.text[over:]) // so that what was said before does not stay in memory
	}
	return len(b), nil
}

// After is what was kept, without the space around it, behind the words that introduce it in a message; "" where there is nothing.
func (w *Writer) After(introduction string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(string(w.text))
	if text == "" {
		return ""
	}
	return introduction + text
}
