package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"gyre/envs"
	"gyre/internal/nearest"
	"gyre/internal/quote"
)

// request is the body of every call: what to make, or which environments to reset, step or close.
type request struct {
	Config   json.RawMessage `json:"config,omitempty"`   // create
	Count    int             `json:"count,omitempty"`    // create
	Items    []item          `json:"items,omitempty"`    // reset, step, close
	Deadline float64         `json:"deadline,omitempty"` // seconds that the caller will still wait
}

type item struct {
	ID     string  `json:"id"`
	Seed   *int64  `json:"seed,omitempty"`   // reset
	Member int     `json:"member,omitempty"` // reset: index in the group
	Seq    int     `json:"seq,omitempty"`    // step: from 1 in an episode; the same number is the same step
	Action *string `json:"action,omitempty"` // step
}

// answer is what comes back.
type answer struct {
	Error string   `json:"error"`
	IDs   []string `json:"ids"`   // create
	Batch int      `json:"batch"` // create: how many items, or environments to make, a request may hold; absent = 1
	Items []result `json:"items"` // reset, step, close: one per item, in order
}

// result is the state after a reset or a step.
type result struct {
	ID          string             `json:"id"`
	Error       string             `json:"error"`
	Gone        bool               `json:"gone"` // there is no environment of that id (any more)
	Observation *envs.Observation  `json:"observation"`
	Instruction string             `json:"instruction"` // reset
	Actions     []string           `json:"actions"`     // reset; absent = any text
	Tools       []envs.Tool        `json:"tools"`       // reset
	Stop        []string           `json:"stop"`        // reset
	Reward      *float64           `json:"reward"`      // step
	Parts       []envs.Component   `json:"parts"`       // step; from and to are characters of the action
	Done        bool               `json:"done"`
	Success     *bool              `json:"success"`   // absent = false
	Valid       *bool              `json:"valid"`     // absent = true
	Effective   *bool              `json:"effective"` // absent = as valid
	Info        map[string]float64 `json:"info"`
}

const (
	longestID    = 200 // of an environment, in bytes
	longestSaid  = 300 // of what a server says went wrong, in a message
	longestShown = 80  // of other texts of a server, in a message
)

// decode reads an answer.
func decode(text []byte) (*answer, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, fmt.Errorf("the server's answer cannot be read: %w", quote.Error(quote.JSON(err)))
	}
	if a.Error != "" {
		return nil, fmt.Errorf("the server says %s", quote.Text(a.Error, longestSaid))
	}
	return &a, nil
}

// check says what is wrong with the answer about an environment.
func (r *result) check(id string) error {
	switch {
	case r.Gone:
		return errGone
	case r.Error != "":
		return fmt.Errorf("the environment says %s", quote.Text(r.Error, longestSaid))
	case r.ID != id:
		return fmt.Errorf("the server answers for environment %s, expected %q", quote.Text(r.ID, longestShown), id)
	case r.Observation == nil:
		return errors.New(`the answer has no "observation"`)
	}
	return nil
}

// errGone means that the server does not know the environment: it was started again, or has thrown it away.
var errGone = errors.New("the server has no environment of this id")

// outcome is a step's result for the rollout.
func (r *result) outcome(action string) (envs.Result, error) {
	if r.Reward == nil {
		return envs.Result{}, errors.New(`the answer to a step has no "reward"`)
	}
	valid := r.Valid == nil || *r.Valid
	effective := valid
	if r.Effective != nil {
		effective = *r.Effective
	}
	if r.Success == nil {
		for name := range r.Info {
			meant, _ := nearest.Match(strings.TrimPrefix(name, "is_"), []string{"success", "access"})
			if meant == "success" {
				return envs.Result{}, fmt.Errorf(`the answer to a step has no "success", but info %s: did you mean `+
					`"success"? (a metric of another meaning can have another name)`, quote.Text(name, longestShown))
			}
		}
	}
	for i := range r.Parts {
		c := &r.Parts[i]
		c.From, c.To = byteOf(action, c.From), byteOf(action, c.To)
	}
	out := envs.Result{Reward: *r.Reward, Components: r.Parts, Done: r.Done, Valid: valid,
		Success: r.Success != nil && *r.Success, Effective: effective, Info: r.Info}
	if err := out.Check(); err != nil {
		return envs.Result{}, fmt.Errorf("the answer to a step: %w", err)
	}
	return out, nil
}

// byteOf is where a character begins.
func byteOf(text string, character int) int {
	if character < 0 {
		return -1
	}
	at := 0
	for ; character > 0 && at < len(text); character-- {
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	return at
}
