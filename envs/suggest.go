package envs

import (
	"fmt"
	"strings"

	"github.com/xrash/smetrics"
)

// didYouMean returns ` (did you mean "x"?)` for the candidate nearest to a misspelt name, or nothing if none is near.
func didYouMean(name string, candidates []string) string {
	best, distance := "", 0
	for _, c := range candidates {
		d := smetrics.WagnerFischer(fold(name), fold(c), 1, 1, 1)
		if strings.Contains(fold(name), fold(c)) || strings.Contains(fold(c), fold(name)) {
			d = min(d, 2)
		}
		if best == "" || d < distance {
			best, distance = c, d
		}
	}
	if best == "" || distance > max(2, len(best)/3) {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}
