package episode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/internal/nearest"
)

var fields = []string{"step", "group", "episode", "tag", "label", "gold", "seed", "ids", "mask", "logprobs", "rewards",
	"score", "success",
	"stop", "turns", "contexts", "components"}

// noNulls are the lists in which encoding/json would silently read a null as 0.
var noNulls = []string{"ids", "mask", "rewards", "turns", "contexts"}

// parse reads one line; index is that of an episode whose line does not give one. Errors name the field and what was
// expected there. Fields it does not know are ignored unless they look like a misspelling of one it knows.
func parse(line []byte, index int) (*Episode, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", explain(err))
	}
	if err := checkNames(object); err != nil {
		return nil, err
	}
	for _, name := range []string{"group", "ids", "mask", "rewards"} {
		if absent(object[name]) {
			return nil, fmt.Errorf("field %q is missing", name)
		}
	}
	var (
		e          = Episode{Index: index}
		mask       []int
		logprobs   []*float32
		rewards    [][]float64
		turns      [][]int
		components map[string]json.RawMessage
	)
	targets := map[string]any{
		"step": &e.Step, "group": &e.Group, "episode": &e.Index, "tag": &e.Tag, "label": &e.Label, "gold": &e.Gold,
		"seed": &e.Seed, "ids": &e.IDs, "mask": &mask,
		"logprobs": &logprobs, "rewards": &rewards, "score": &e.Score, "success": &e.Success, "stop": &e.Stop,
		"turns":    &turns,
		"contexts": &e.Contexts, "components": &components,
	}
	for _, name := range fields {
		if absent(object[name]) {
			continue
		}
		if slices.Contains(noNulls, name) && bytes.Contains(object[name], []byte("null")) {
			return nil, fmt.Errorf("field %q holds a null, expected numbers only", name)
		}
		if err := json.Unmarshal(object[name], targets[name]); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, explain(err))
		}
	}
	if e.Stop != "" && !slices.Contains(Stops, e.Stop) {
		return nil, fmt.Errorf("stop = %q, expected one of %s", e.Stop, strings.Join(Stops, ", "))
	}
	if err := e.setMask(mask); err != nil {
		return nil, err
	}
	if err := e.setLogprobs(logprobs); err != nil {
		return nil, err
	}
	var err error
	if e.Rewards, err = readRewards("rewards", rewards, len(e.IDs)); err != nil {
		return nil, err
	}
	if err := e.setComponents(components); err != nil {
		return nil, err
	}
	if absent(object["score"]) {
		e.Score = e.Return()
	}
	if absent(object["turns"]) {
		e.Turns = runs(e.Mask)
	} else if err := e.setTurns(turns); err != nil {
		return nil, err
	}
	return &e, e.Check()
}

func absent(raw json.RawMessage) bool {
	return raw == nil || bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// checkNames refuses near misses ("logprob"): ignoring one would silently change what is computed.
func checkNames(object map[string]json.RawMessage) error {
	for name := range object {
		if slices.Contains(fields, name) {
			continue
		}
		if known, ok := nearest.Match(name, fields); ok {
			return fmt.Errorf("unknown field %q, did you mean %q?", name, known)
		}
	}
	return nil
}

func (e *Episode) setMask(mask []int) error {
	e.Mask = make([]bool, len(mask))
	for t, m := range mask {
		if m != 0 && m != 1 {
			return fmt.Errorf("mask[%d] = %d, expected 0 or 1", t, m)
		}
		e.Mask[t] = m == 1
	}
	return nil
}

func (e *Episode) setLogprobs(logprobs []*float32) error {
	if logprobs == nil {
		return nil
	}
	if len(logprobs) != len(e.Mask) {
		return fmt.Errorf("logprobs has %d entries, expected %d (one per id)", len(logprobs), len(e.Mask))
	}
	e.Logprob = make([]float32, len(logprobs))
	for t, v := range logprobs {
		switch {
		case !e.Mask[t]:
		case v == nil:
			return fmt.Errorf("logprobs[%d] is null, expected a number where the mask is 1", t)
		default:
			e.Logprob[t] = *v
		}
	}
	return nil
}

func readRewards(field string, pairs [][]float64, n int) ([]Reward, error) {
	var rewards []Reward
	for i, pair := range pairs {
		if len(pair) != 2 || pair[0] != math.Trunc(pair[0]) {
			return nil, fmt.Errorf("%s[%d] = %v, expected [token index, reward]", field, i, pair)
		}
		if pair[0] < 0 || pair[0] >= float64(n) {
			return nil, fmt.Errorf("%s[%d] is for token %v, expected 0 to %d", field, i, pair[0], n-1)
		}
		rewards = append(rewards, Reward{Token: int(pair[0]), Value: pair[1]})
	}
	return rewards, nil
}

func (e *Episode) setComponents(components map[string]json.RawMessage) error {
	for name, raw := range components {
		field := "components." + name
		var pairs [][]float64
		if bytes.Contains(raw, []byte("null")) {
			return fmt.Errorf("field %q holds a null, expected numbers only", field)
		}
		if err := json.Unmarshal(raw, &pairs); err != nil {
			return fmt.Errorf("field %q: %w", field, explain(err))
		}
		rewards, err := readRewards(field, pairs, len(e.IDs))
		if err != nil {
			return err
		}
		if e.Components == nil {
			e.Components = map[string][]Reward{}
		}
		e.Components[name] = rewards
	}
	return nil
}

func (e *Episode) setTurns(turns [][]int) error {
	for i, turn := range turns {
		if len(turn) != 3 {
			return fmt.Errorf("turns[%d] has %d numbers, expected 3: [observation, reply, end]", i, len(turn))
		}
		e.Turns = append(e.Turns, Turn{Observation: turn[0], Reply: turn[1], End: turn[2]})
	}
	return nil
}

// runs makes one turn of every run of policy tokens: the environment always speaks between two replies.
func runs(mask []bool) []Turn {
	var turns []Turn
	end := 0
	for t := 0; t < len(mask); t++ {
		if !mask[t] {
			continue
		}
		turn := Turn{Observation: end, Reply: t}
		for t < len(mask) && mask[t] {
			t++
		}
		turn.End, end = t, t
		turns = append(turns, turn)
	}
	return turns
}

// explain turns the standard library's Go-flavoured message into one about JSON.
func explain(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		expected := map[string]string{"int": "an integer", "int32": "an integer that fits in 32 bits",
			"int64":   "an integer",
			"float32": "a number", "float64": "a number", "string": "a string",
			"bool": "true or false"}[wrong.Type.String()]
		if expected == "" {
			expected = "a list of numbers"
		}
		return fmt.Errorf("got %s, expected %s", wrong.Value, expected)
	}
	return err
}
