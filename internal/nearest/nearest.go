// Package nearest finds the name somebody probably meant.
package nearest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/xrash/smetrics"
)

// threshold is the Jaro-Winkler similarity from which a name counts as a near miss: one or two slips in a word of
// usual length stay above it, unrelated words below.
const threshold = 0.84

// Match returns the candidate most similar to word, ignoring case and the difference between - and _, and false when
// none is similar enough to be worth proposing. The earlier candidate wins a tie.
func Match(word string, candidates []string) (string, bool) {
	best, similarity := "", threshold
	for _, candidate := range candidates {
		if s := smetrics.JaroWinkler(fold(word), fold(candidate), 0.7, 4); s > similarity {
			best, similarity = candidate, s
		}
	}
	return best, best != ""
}

// Hint renders Match as the tail of an error message: " (did you mean X?)", or nothing.
func Hint(word string, candidates []string) string {
	if match, ok := Match(word, candidates); ok {
		return fmt.Sprintf(" (did you mean %s?)", match)
	}
	return ""
}

// Keys is an error that names the first key of a JSON object, in alphabetical order, that is none of the known ones. It
// is nil where data is no object: whoever decodes it says so.
func Keys(data []byte, known ...string) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(known, key) {
			return fmt.Errorf("there is no key %.80q%s: expected %s", key, Hint(key, known), strings.Join(known, ", "))
		}
	}
	return nil
}

func fold(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
