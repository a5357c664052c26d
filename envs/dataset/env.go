// Package dataset plays files of prompts and answers: each row is an episode, whose reply is the policy's whole
// text and is judged by the components of gyre/envs/reward. Rows come in a new order in every epoch, and the order
// follows from the seeds alone; after a wrong answer the environment may ask again.
//
// It also makes sums of its own (tag Arithmetic), for policies that learn from nothing.
package dataset

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"gyre/envs"
	"gyre/envs/reward"
	"gyre/internal/dataset"
)

// reader is the environment; it implements envs.Env, envs.Solver and envs.DataSet.
type reader struct {
	envs.Episode
	source   source
	attempts int
	feedback string

	components  []component
	correctness reward.Component // says when a reply is right: one of the components, or one of its own
	judge       int              // its place among the components; -1 = none
	unjudged    bool             // the experiment's reward is about something else than right answers
	form        string           // where it looks for the answer (see reward.Extract)

	row     dataset.Row
	seed    int64
	attempt int
	shown   envs.Observation
	reply   envs.Reply
}

// component is one named component of the reward.
type component struct {
	name string
	reward.Component
}

// source gives the problem of a seed.
type source interface {
	row(seed int64) dataset.Row
}

// defaults are the components that episodes carry when the experiment names none: the rldynamic project's.
var defaults = []envs.ComponentSpec{{Name: "correctness"}, {Name: "format"}, {Name: "length"}}

// newReader makes an environment whose reward has the wanted components, or the defaults.
func newReader(s source, attempts int, feedback string, wanted []envs.ComponentSpec) (envs.Env, error) {
	if len(wanted) == 0 {
		wanted = defaults
	}
	r := &reader{source: s, attempts: attempts, feedback: feedback, judge: -1, form: "auto"}
	var problems []error
	for _, w := range wanted {
		c, err := reward.New(w.Name, w.Options)
		if err != nil {
			problems = append(problems, fmt.Errorf("[[rewards]]: %w", err))
			continue
		}
		r.components = append(r.components, component{w.Name, c})
		if r.correctness == nil && reward.KindOf(w.Name, w.Options) == "correctness" {
			r.correctness, r.judge = c, len(r.components)-1
			if form, given := w.Options["answer"].(string); given {
				r.form = form
			}
		}
	}
	r.unjudged = r.correctness == nil
	if r.correctness == nil {
		r.correctness, _ = reward.New("correctness", nil) // nothing can be wrong without options
	}
	if problems != nil {
		return nil, errors.Join(append(problems, r.Close())...)
	}
	return r, nil
}

func (r *reader) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	r.row, r.seed = r.source.row(seed), seed
	r.attempt, r.reply = 0, envs.Reply{}
	r.shown = observation(r.row.Prompt)
	start := r.Begin("Solve the problem and give its answer in the form that it asks for.", nil)
	start.Name, start.Answer = r.row.Name, r.row.Gold
	start.OnReply = func(reply envs.Reply) { r.reply = reply }
	return start, nil
}

// observation shows a prompt: one message of the user's is its text.
func observation(prompt []dataset.Message) envs.Observation {
	if len(prompt) == 1 && prompt[0].Role == "user" {
		return envs.Observation{Text: prompt[0].Content}
	}
	var o envs.Observation
	for _, m := range prompt {
		o.Messages = append(o.Messages, envs.Message{Role: m.Role, Content: m.Content})
	}
	return o
}

// Set implements envs.DataSet.
func (r *reader) Set() *dataset.Set {
	if s, ok := r.source.(*rows); ok {
		return s.set
	}
	return nil
}

// Task implements envs.Recurrent: the rows of a file come back.
func (r *reader) Task(seed int64) string {
	if s, ok := r.source.(*rows); ok {
		return s.row(seed).Name
	}
	return ""
}

func (r *reader) Observe() envs.Observation { return r.shown }

// Step judges a reply. Only the last reply of an episode carries rewards: one that is right, or the last attempt.
func (r *reader) Step(ctx context.Context, action string) (envs.Result, error) {
	if _, err := r.Take(action); err != nil {
		return envs.Result{}, err
	}
	judged := reward.Reply{Prompt: r.shown.String(), Question: r.row.Question, Text: action, Gold: r.row.Gold,
		Unit: r.row.Unit, Source: r.row.Source, ID: r.row.ID, Columns: r.row.Columns, Tokens: r.reply.Tokens,
		Truncated: r.reply.Truncated}
	right, err := r.correctness.Score(ctx, judged)
	if err != nil {
		return envs.Result{}, fmt.Errorf("%s: correctness: %w", r.row.Name, err)
	}
	result := envs.Result{Valid: true, Effective: true, Success: right.Value >= 1,
		Unjudged: r.unjudged}
	r.attempt++
	if !result.Success && r.attempt < r.attempts {
		r.shown = envs.Observation{Text: r.feedback}
		return result, nil
	}
	result.Done, result.Reward = true, right.Value
	for i, c := range r.components {
		score := right
		if i != r.judge {
			if score, err = c.Score(ctx, judged); err != nil {
				return envs.Result{}, fmt.Errorf("%s: reward %s: %w", r.row.Name, c.name, err)
			}
		}
		result.Components = append(result.Components,
			envs.Component{Name: c.name, Value: score.Value, From: score.From, To: score.To})
	}
	_, answered := reward.Extract(action, "auto")
	result.Info = map[string]float64{
		"answered": envs.Indicator(answered && strings.TrimSpace(action) != ""), "attempts": float64(r.attempt),
		"reply_characters": float64(utf8.RuneCountInString(action))}
	if !r.unjudged && !reward.Verifies(r.row.Source) {
		result.Info["readable"] = envs.Indicator(reward.Readable(action, r.form))
	}
	return r.End(result)
}

// Solve gives the answer in a box, or alone where problems ask for it so.
func (r *reader) Solve() ([]string, bool) {
	if !r.Running() || r.row.Gold == "" {
		return nil, false
	}
	answer := r.row.Gold
	if s, ok := r.source.(*sums); ok {
		answer = s.teach(r.seed, answer)
	}
	switch asked := r.row.Prompt[len(r.row.Prompt)-1].Content; {
	case strings.Contains(asked, `\boxed`):
		answer = `\boxed{` + answer + `}`
	case strings.Contains(asked, "####"):
		answer = "#### " + answer
	}
	return []string{answer}, true
}

func (r *reader) Close() error {
	problems := []error{r.Episode.Close()}
	for _, c := range r.components {
		problems = append(problems, c.Close())
	}
	return errors.Join(problems...)
}
