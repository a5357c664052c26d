package endpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Usage is what a server was asked for.
type Usage struct {
	Requests   int            `json:"requests"`
	Kept       int            `json:"kept"` // of the requests, that were answered before
	Prompt     int            `json:"prompt_tokens"`
	Cached     int            `json:"cached_tokens"` // of the prompts, as the server counts them
	Completion int            `json:"completion_tokens"`
	Texts      int            `json:"texts"`             // episodes whose sampled tokens only the server counted
	Retries    map[string]int `json:"retries,omitempty"` // requests that were made again, by cause
}

func (u *Usage) add(c counts, kept bool) {
	u.Requests++
	if kept {
		u.Kept++
	}
	u.Prompt, u.Cached, u.Completion = u.Prompt+c.Prompt, u.Cached+c.Details.Cached, u.Completion+c.Completion
}

// Since is what a usage has more than an earlier one.
func (u Usage) Since(before Usage) Usage { return u.plus(before, -1) }

// Plus adds another usage.
func (u Usage) Plus(o Usage) Usage { return u.plus(o, 1) }

func (u Usage) plus(o Usage, sign int) Usage {
	u.Requests, u.Kept, u.Prompt = u.Requests+sign*o.Requests, u.Kept+sign*o.Kept, u.Prompt+sign*o.Prompt
	u.Cached, u.Completion, u.Texts = u.Cached+sign*o.Cached, u.Completion+sign*o.Completion, u.Texts+sign*o.Texts
	retries := map[string]int{}
	for _, list := range []map[string]int{u.Retries, o.Retries} {
		for cause := range list {
			retries[cause] = u.Retries[cause] + sign*o.Retries[cause]
		}
	}
	maps.DeleteFunc(retries, func(_ string, n int) bool { return n == 0 })
	u.Retries = retries
	return u
}

// Prices are dollars per million tokens.
type Prices struct{ Prompt, Completion float64 }

// Cost is what the tokens cost, cached ones as much as others.
func (p Prices) Cost(u Usage) float64 {
	return (p.Prompt*float64(u.Prompt) + p.Completion*float64(u.Completion)) / 1e6
}

// String is the usage in one line.
func (u Usage) String() string {
	text := fmt.Sprintf("%d requests (%d kept from before), %d prompt tokens (%d cached), %d completion tokens",
		u.Requests, u.Kept, u.Prompt, u.Cached, u.Completion)
	var again []string
	for _, cause := range slices.Sorted(maps.Keys(u.Retries)) {
		again = append(again, fmt.Sprintf("%s ×%d", cause, u.Retries[cause]))
	}
	if again != nil {
		text += "; made again: " + strings.Join(again, ", ")
	}
	return text
}
