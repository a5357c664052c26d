package episodes

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
	"gyre/orchestrate/loop/episode"
)

// View is an episode as it was seen.
type View struct {
	Run string `json:"run"`
	Entry
	Gold  string `json:"gold,omitempty"`
	Start string `json:"start,omitempty"` // the board before the first turn
	Turns []Turn `json:"turns"`
	// Tokens are all of the episode's. Notes say of columns that are missing why, by name.
	Tokens Tokens            `json:"tokens"`
	Notes  map[string]string `json:"notes,omitempty"`
}

// Turn is what was shown, what was replied, and what that earned.
type Turn struct {
	From       int                `json:"from"` // tokens: prompt [From, Reply), reply [Reply, End)
	Reply      int                `json:"reply"`
	End        int                `json:"end"`
	Messages   []Message          `json:"messages"`
	Parts      []Part             `json:"parts"`
	Cut        bool               `json:"cut,omitempty"` // the reply, by rollout.max_tokens
	Reward     float64            `json:"reward"`
	Components map[string]float64 `json:"components,omitempty"`
	Actions    []string           `json:"actions,omitempty"` // that were carried out, where the episode could be replayed
	Board      string             `json:"board,omitempty"`   // after the turn
}

// The owners of tokens. An earlier reply is the policy's, shown again and not trained.
const (
	Template = iota
	Environment
	Policy
	Earlier
)

// Tokens are columns as long as the episode; one that is not known is absent.
type Tokens struct {
	ID      []int32           `json:"id"`
	Text    []string          `json:"text"` // whole characters; a token that ends within one has what it completes
	Owner   []int             `json:"owner"`
	Special []int             `json:"special"` // the tokens that are markup of the tokenizer
	Columns map[string]Column `json:"columns"` // logprob, entropy, advantage, ratio, staleness
}

// Column is a number per token, NaN where the policy has not sampled the token.
type Column []float64

// MarshalJSON writes null for NaN.
func (c Column) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, v := range c {
		if i > 0 {
			out = append(out, ',')
		}
		if !statistics.Finite(v) {
			out = append(out, "null"...)
			continue
		}
		out = strconv.AppendFloat(out, v, 'g', 6, 64)
	}
	return append(out, ']'), nil
}

// View reads an episode of an index.
func (s *Source) View(ctx context.Context, entry Entry) (*View, error) {
	e, err := entry.decode()
	if err != nil {
		return nil, err
	}
	s.open()
	v := &View{Run: s.Path, Entry: entry, Gold: e.Gold, Notes: map[string]string{}}
	v.Tokens = s.tokens(e)
	if s.tokenizer == nil {
		v.Notes["text"] = fmt.Sprintf("tokens are shown by number: %v", s.problem)
	}
	v.owners(e)
	if err := s.columns(e, v); err != nil {
		return nil, err
	}
	at := 0
	for i, turn := range e.Turns {
		t := Turn{From: at, Reply: turn.Reply, End: turn.End, Cut: slices.Contains(e.Cut, i),
			Components: map[string]float64{}}
		t.Messages, t.Parts = v.messages(at, turn.Reply), s.parts(v, turn.Reply, turn.End)
		for _, r := range e.Rewards {
			t.Reward += r.Value * within(r.Token, at, turn.End)
		}
		for name, rewards := range e.Components {
			for _, r := range rewards {
				t.Components[name] += r.Value * within(r.Token, at, turn.End)
			}
		}
		v.Turns, at = append(v.Turns, t), turn.End
	}
	if problem := s.replay(ctx, e, v); problem != nil {
		v.Notes["board"] = problem.Error()
	}
	return v, nil
}

func within(token, from, end int) float64 {
	if token >= from && token < end {
		return 1
	}
	return 0
}

// tokens gives ids their text: bytes of a character that several tokens share go to the one that completes it.
func (s *Source) tokens(e *episode.Episode) Tokens {
	t := Tokens{ID: e.IDs, Text: make([]string, len(e.IDs)), Owner: make([]int, len(e.IDs)), Special: []int{},
		Columns: map[string]Column{}}
	var held []byte
	for i, id := range e.IDs {
		if s.tokenizer == nil {
			t.Text[i] = strconv.Itoa(int(id)) + " "
			continue
		}
		held = append(held, s.tokenizer.TokenBytes(id)...)
		whole := len(held)
		for k := 1; k <= min(utf8.UTFMax-1, len(held)); k++ { // an incomplete character at the end waits
			if tail := held[len(held)-k:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) && i+1 < len(e.IDs) {
					whole = len(held) - k
				}
				break
			}
		}
		t.Text[i] = strings.ToValidUTF8(string(held[:whole]), "\uFFFD")
		held = append([]byte(nil), held[whole:]...)
		if s.tokenizer.Special(id) {
			t.Special = append(t.Special, i)
		}
	}
	return t
}

// columns fills what was recorded of the sampled tokens, and notes why the rest is missing.
func (s *Source) columns(e *episode.Episode, v *View) error {
	n := len(e.IDs)
	put := func(name string, at func(token int) float64) {
		column := make(Column, n)
		for t := range column {
			if column[t] = math.NaN(); e.Mask[t] {
				column[t] = at(t)
			}
		}
		v.Tokens.Columns[name] = column
	}
	if e.Logprob != nil {
		put("logprob", func(t int) float64 { return float64(e.Logprob[t]) })
	} else {
		v.Notes["logprob"] = "not recorded: the log-probs of these tokens are not those of the policy"
	}
	v.staleness(e, put)
	v.note("not recorded: only episodes of training steps are trained on")
	if v.Kind != "step" {
		return nil
	}
	path := filepath.Join(filepath.Dir(v.file.Path), fmt.Sprintf("update_%d.jsonl", v.file.Step))
	step, err := episode.ReadLearned(path)
	learned, kept := step[v.Episode]
	switch {
	case err != nil && !atomicfile.Exists(path):
		v.note("not recorded: an older version wrote this run, or the filter kept no group of this step")
		return nil
	case err != nil:
		return err
	case !kept:
		v.note("none: the filter has dropped the group, nothing was trained on it")
		return nil
	}
	for name, pairs := range map[string]episode.Pairs{"advantage": learned.Advantages, "ratio": learned.Ratios,
		"entropy": learned.Entropies} {
		if column := pairs.Column(n); column != nil {
			delete(v.Notes, name)
			put(name, func(t int) float64 { return column[t] })
		}
	}
	if learned.Ratios == nil {
		v.Notes["ratio"] = "1 for every token: the sampler's log-probs are the trainer's, bit for bit"
	}
	if learned.Entropies == nil {
		v.Notes["entropy"] = "not recorded: the step computes it where actor.entropy_top or filter.metric asks for it"
	}
	return nil
}

// note says why what an update knows of tokens is missing.
func (v *View) note(why string) {
	for _, name := range []string{"advantage", "ratio", "entropy"} {
		v.Notes[name] = why
	}
}

// staleness is how many updates older than the policy that learns the one was that drew a token.
func (v *View) staleness(e *episode.Episode, put func(string, func(int) float64)) {
	if len(e.Versions) == 0 || v.Kind != "step" {
		v.Notes["staleness"] = "not recorded: where playing and updating take turns it is 0"
		return
	}
	put("staleness", func(t int) float64 {
		version := e.Versions[0].Version
		for _, run := range e.Versions {
			if run.Token <= t {
				version = run.Version
			}
		}
		return float64(v.Step - 1 - version)
	})
}
