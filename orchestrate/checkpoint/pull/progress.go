package pull

import (
	"fmt"
	"io"
	"time"
)

// Lines reports on a log: a line when a file begins, every few seconds, and when it is complete.
func Lines(w io.Writer) Progress {
	const interval = 5 * time.Second
	current, last := "", time.Time{}
	return func(name string, done, total int64) {
		finished := done == total
		if name == current && !finished && time.Since(last) < interval {
			return
		}
		current, last = name, time.Now()
		if total > 0 {
			fmt.Fprintf(w, "%s  %.1f of %.1f MB\n", name, float64(done)/1e6, float64(total)/1e6)
		} else {
			fmt.Fprintf(w, "%s  %.1f MB\n", name, float64(done)/1e6)
		}
	}
}
