// Package child looks after programs that a gyre process starts: what becomes of its own processes (ranks, runs of a
// study) when it is interrupted or killed, and what a program said last before it failed.
package child

import (
	"bytes"
	"strings"
	"sync"
)

// LastWords keeps the end of what a program writes to its standard error, which says best why it failed. It is safe
// for concurrent use.
type LastWords struct {
	most int
	mu   sync.Mutex // guards text
	text []byte
}

// KeepWords returns a writer that keeps at most so many bytes.
func KeepWords(most int) *LastWords { return &LastWords{most: most} }

func (w *LastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, b...)
	if over := len(w.text) - w.most; over > 0 {
		w.text = bytes.Clone(w.text[over:]) // so that what was said before does not stay in memory
	}
	return len(b), nil
}

// After is what was kept, without the space around it, behind the words that introduce it in a message; "" where
// there is nothing.
func (w *LastWords) After(introduction string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := strings.TrimSpace(string(w.text))
	if text == "" {
		return ""
	}
	return introduction + text
}
