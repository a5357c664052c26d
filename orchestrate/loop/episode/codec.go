package episode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/masks"
	"gyre/internal/nearest"
	"gyre/internal/quote"
)

// record is an episode as its line has it.
type record struct {
	Step       int                    `json:"step"`
	Group      int                    `json:"group"`
	Episode    int                    `json:"episode"`
	Tag        string                 `json:"tag"`
	Label      string                 `json:"label,omitempty"`
	Gold       string                 `json:"gold,omitempty"`
	Seed       int64                  `json:"seed"`
	IDs        []int32                `json:"ids"`
	Mask       []int                  `json:"mask"`
	Logprobs   []*float32             `json:"logprobs,omitempty"`
	Rewards    [][]float64            `json:"rewards"` // token index, reward
	Score      float64                `json:"score"`
	Weight     float64                `json:"weight,omitempty"`
	Success    *bool                  `json:"success"` // null: not known
	Stop       string                 `json:"stop"`
	Turns      [][]int                `json:"turns"`         // observation, reply, end
	Cut        []int                  `json:"cut,omitempty"` // turns
	States     []uint32               `json:"states,omitempty"`
	Contexts   []int                  `json:"contexts,omitempty"`
	Versions   [][]int                `json:"versions,omitempty"` // token, version
	Mixed      [][2]int               `json:"mixed,omitempty"`    // from token, to before token
	Components map[string][][]float64 `json:"components,omitempty"`
}

// Encode makes the episode's line, without the newline. It fails on what the format cannot hold or the reader would
// refuse: slices of unequal length, tokens outside the episode, numbers that are not finite.
func Encode(e *Episode) ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	r := record{Step: e.Step, Group: e.Group, Episode: e.Index, Tag: e.Tag, Label: e.Label, Gold: e.Gold, Seed: e.Seed,
		IDs: e.IDs, Mask: make([]int, len(e.Mask)), Rewards: rewardPairs(e.Rewards), Score: e.Score,
		Weight: e.Weight, Stop: e.Stop, Turns: make([][]int, len(e.Turns)), Cut: e.Cut, States: e.States,
		Contexts: e.Contexts, Mixed: e.Mixed}
	if !e.Unjudged {
		r.Success = &e.Success
	}
	if e.Logprob != nil {
		r.Logprobs = make([]*float32, len(e.Logprob))
	}
	for t := range masks.Tokens(e.Mask) {
		if r.Mask[t] = 1; r.Logprobs != nil {
			r.Logprobs[t] = &e.Logprob[t]
		}
	}
	for i, turn := range e.Turns {
		r.Turns[i] = []int{turn.Observation, turn.Reply, turn.End}
	}
	for _, run := range e.Versions {
		r.Versions = append(r.Versions, []int{run.Token, run.Version})
	}
	if len(e.Components) > 0 {
		r.Components = map[string][][]float64{}
	}
	for name, rewards := range e.Components {
		r.Components[name] = rewardPairs(rewards)
	}
	return json.Marshal(r)
}

func rewardPairs(rewards []Reward) [][]float64 {
	pairs := make([][]float64, len(rewards))
	for i, r := range rewards {
		pairs[i] = []float64{float64(r.Token), r.Value}
	}
	return pairs
}

// Decode reads one line; index is that of an episode whose line does not give one. Errors name the field and what was
// expected there. Fields it does not know are ignored unless they look like a misspelling of one it knows.
func Decode(line []byte, index int) (*Episode, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", quote.JSON(err))
	}
	r := record{Episode: index}
	fields := reflect.ValueOf(&r).Elem()
	if err := checkNames(object, fields.Type()); err != nil {
		return nil, err
	}
	components := map[string]json.RawMessage{}
	for i := range fields.NumField() {
		name, to := fieldName(fields.Type().Field(i)), fields.Field(i).Addr().Interface()
		if name == "components" { // each is a field of its own
			to = &components
		}
		if err := decodeField(name, object[name], to); err != nil {
			return nil, err
		}
	}
	for name, raw := range components {
		var pairs [][]float64
		if err := decodeField("components."+name, raw, &pairs); err != nil {
			return nil, err
		}
		if r.Components == nil {
			r.Components = map[string][][]float64{}
		}
		r.Components[name] = pairs
	}
	if r.Stop != "" && !slices.Contains(Stops, r.Stop) {
		return nil, fmt.Errorf("stop = %q, expected one of %s", r.Stop, strings.Join(Stops, ", "))
	}
	e, err := r.episode()
	if err != nil {
		return nil, err
	}
	if absent(object["score"]) {
		e.Score = e.Return()
	}
	if absent(object["turns"]) {
		e.Turns = runs(e.Mask)
	}
	return e, e.Check()
}

// checkNames refuses near misses ("logprob"), since ignoring one would silently change what is computed, and objects
// without a field that is required.
func checkNames(object map[string]json.RawMessage, record reflect.Type) error {
	var known []string
	for field := range record.Fields() {
		known = append(known, fieldName(field))
	}
	for name := range object {
		if match, ok := nearest.Match(name, known); ok && !slices.Contains(known, name) {
			return fmt.Errorf("unknown field %q, did you mean %q?", name, match)
		}
	}
	for _, name := range []string{"group", "ids", "mask", "rewards"} {
		if absent(object[name]) {
			return fmt.Errorf("field %q is missing", name)
		}
	}
	return nil
}

func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func absent(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// decodeField reads a field, unless it is absent. Only log-probs may hold a null, which encoding/json would silently
// read as 0 elsewhere.
func decodeField(name string, raw json.RawMessage, to any) error {
	if absent(raw) {
		return nil
	}
	kind := reflect.TypeOf(to).Elem()
	if kind.Kind() == reflect.Slice && kind.Elem().Kind() != reflect.Pointer && bytes.Contains(raw, []byte("null")) {
		return fmt.Errorf("field %q holds a null, expected numbers only", name)
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("field %q: %w", name, quote.JSON(err))
	}
	return nil
}

// episode is what a record says.
func (r record) episode() (_ *Episode, err error) {
	e := &Episode{Step: r.Step, Group: r.Group, Index: r.Episode, Tag: r.Tag, Label: r.Label, Gold: r.Gold,
		Seed: r.Seed, IDs: r.IDs, Mask: make([]bool, len(r.Mask)), Score: r.Score, Stop: r.Stop, Weight: r.Weight,
		Contexts: r.Contexts, Cut: r.Cut, States: r.States}
	if e.Unjudged = r.Success == nil; !e.Unjudged {
		e.Success = *r.Success
	}
	for t, m := range r.Mask {
		if m != 0 && m != 1 {
			return nil, fmt.Errorf("mask[%d] = %d, expected 0 or 1", t, m)
		}
		e.Mask[t] = m == 1
	}
	if r.Logprobs != nil {
		if len(r.Logprobs) != len(e.Mask) {
			return nil, fmt.Errorf("logprobs has %d entries, expected %d (one per id)", len(r.Logprobs), len(e.Mask))
		}
		e.Logprob = make([]float32, len(r.Logprobs))
	}
	for t, v := range r.Logprobs {
		switch {
		case !e.Mask[t]:
		case v == nil:
			return nil, fmt.Errorf("logprobs[%d] is null, expected a number where the mask is 1", t)
		default:
			e.Logprob[t] = *v
		}
	}
	for i, turn := range r.Turns {
		if len(turn) != 3 {
			return nil, fmt.Errorf("turns[%d] has %d numbers, expected 3: [observation, reply, end]", i, len(turn))
		}
		e.Turns = append(e.Turns, Turn{Observation: turn[0], Reply: turn[1], End: turn[2]})
	}
	for i, pair := range r.Versions {
		if len(pair) != 2 {
			return nil, fmt.Errorf("versions[%d] has %d numbers, expected 2: [token index, version]", i, len(pair))
		}
		e.Versions = append(e.Versions, Run{Token: pair[0], Version: pair[1]})
	}
	e.Mixed = r.Mixed
	if e.Rewards, err = readRewards("rewards", r.Rewards); err != nil {
		return nil, err
	}
	if r.Components != nil {
		e.Components = map[string][]Reward{}
	}
	for name, pairs := range r.Components {
		if e.Components[name], err = readRewards("components."+name, pairs); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func readRewards(field string, pairs [][]float64) (rewards []Reward, err error) {
	for i, pair := range pairs {
		if len(pair) != 2 || pair[0] != math.Trunc(pair[0]) || math.Abs(pair[0]) > math.MaxInt32 {
			return nil, fmt.Errorf("%s[%d] = %v, expected [token index, reward]", field, i, pair)
		}
		rewards = append(rewards, Reward{Token: int(pair[0]), Value: pair[1]})
	}
	return rewards, nil
}

// runs makes one turn of every run of policy tokens: the environment always speaks between two replies.
func runs(mask []bool) []Turn {
	var turns []Turn
	for t, sampled := range mask {
		switch last := len(turns) - 1; {
		case sampled && t > 0 && mask[t-1]:
			turns[last].End = t + 1
		case sampled && last >= 0:
			turns = append(turns, Turn{Observation: turns[last].End, Reply: t, End: t + 1})
		case sampled:
			turns = append(turns, Turn{Reply: t, End: t + 1})
		}
	}
	return turns
}
