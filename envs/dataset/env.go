package dataset

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gyre/envs"
	"gyre/envs/reward"
	"gyre/internal/dataset"
)

// reader is the environment; it implements envs.Env, envs.RewardTaker, envs.ReplyTaker and envs.Labeler.
type reader struct {
	source   source
	attempts int
	feedback string

	parts       []part
	correctness reward.Component // says when a reply is right: one of the parts, or one of its own
	judge       int              // its place among the parts; -1 = none

	row     dataset.Row
	seed    int64
	attempt int
	shown   envs.Observation
	reply   envs.Reply
	running bool
}

// part is one named component of the reward.
type part struct {
	name      string
	component reward.Component
}

// source gives the problem of a seed.
type source interface {
	row(seed int64) dataset.Row
}

// defaults are the parts that episodes carry when the experiment names none: the rldynamic project's.
var defaults = []envs.Wanted{{Name: "correctness"}, {Name: "format"}, {Name: "length"}}

func newReader(s source, attempts int, feedback string) (envs.Env, error) {
	r := &reader{source: s, attempts: attempts, feedback: feedback}
	return r, r.TakeRewards(defaults)
}

// TakeRewards replaces the parts of the reward.
func (r *reader) TakeRewards(wanted []envs.Wanted) error {
	var parts []part
	var correctness reward.Component
	judge := -1
	var problems []error
	for _, w := range wanted {
		c, err := reward.New(w.Name, w.Options)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		parts = append(parts, part{w.Name, c})
		if kind, _ := w.Options["component"].(string); correctness == nil && (kind == "correctness" || kind == "" && w.Name == "correctness") {
			correctness, judge = c, len(parts)-1
		}
	}
	if correctness == nil {
		c, err := reward.New("correctness", nil)
		if err != nil {
			problems = append(problems, err)
		}
		correctness = c
	}
	old := r.parts
	r.parts, r.correctness, r.judge = parts, correctness, judge
	if problems != nil {
		problems = append(problems, r.Close())
	}
	for _, p := range old {
		problems = append(problems, p.component.Close())
	}
	return errors.Join(problems...)
}

func (r *reader) Reset(_ context.Context, seed int64) error {
	r.row, r.seed = r.source.row(seed), seed
	r.attempt, r.running, r.reply = 0, true, envs.Reply{}
	r.shown = observation(r.row.Prompt)
	return nil
}

// observation shows a prompt: one message of the user's is its text.
func observation(prompt []dataset.Message) envs.Observation {
	if len(prompt) == 1 && prompt[0].Role == "user" {
		return envs.Observation{Text: prompt[0].Content}
	}
	var o envs.Observation
	for _, m := range prompt {
		role := m.Role
		if role != "system" && role != "tool" {
			role = "user" // an environment cannot speak as the assistant
		}
		o.Messages = append(o.Messages, envs.Message{Role: role, Content: m.Content})
	}
	return o
}

func (r *reader) Observe() envs.Observation { return r.shown }

// Label names the problem of the episode and gives its answer.
func (r *reader) Label() (name, answer string) { return r.row.Source + "/" + r.row.ID, r.row.Gold }

func (r *reader) TakeReply(reply envs.Reply) { r.reply = reply }

// Step judges a reply. Only the last reply of an episode carries rewards: one that is right, or the last attempt.
func (r *reader) Step(ctx context.Context, action string) (envs.Result, error) {
	if !r.running {
		return envs.Result{}, envs.ErrNotRunning
	}
	judged := reward.Reply{Prompt: r.shown.String(), Question: r.row.Question, Text: action, Gold: r.row.Gold, Source: r.row.Source,
		ID: r.row.ID, Columns: r.row.Columns, Tokens: r.reply.Tokens, Truncated: r.reply.Truncated}
	right, err := r.correctness.Score(ctx, judged)
	if err != nil {
		return envs.Result{}, fmt.Errorf("%s/%s: correctness: %w", r.row.Source, r.row.ID, err)
	}
	result := envs.Result{Valid: true, Effective: true, Success: right.Value >= 1}
	r.attempt++
	if !result.Success && r.attempt < r.attempts {
		r.shown = envs.Observation{Text: r.feedback}
		return result, nil
	}
	result.Done, result.Reward = true, right.Value
	for i, p := range r.parts {
		score := right
		if i != r.judge {
			if score, err = p.component.Score(ctx, judged); err != nil {
				return envs.Result{}, fmt.Errorf("%s/%s: reward %s: %w", r.row.Source, r.row.ID, p.name, err)
			}
		}
		result.Parts = append(result.Parts, envs.Part{Name: p.name, Value: score.Value, From: score.From, To: score.To})
	}
	_, answered := reward.Extract(action, "auto")
	result.Info = map[string]float64{"answered": 0, "attempts": float64(r.attempt), "reply_characters": float64(len([]rune(action)))}
	if answered && strings.TrimSpace(action) != "" {
		result.Info["answered"] = 1
	}
	r.running = false
	return result, nil
}

func (r *reader) Actions() []string { return nil }

func (r *reader) Instruction() string {
	return "Solve the problem and give its answer in the form that it asks for."
}

// Solve gives the answer in a box, or alone where problems ask for it so.
func (r *reader) Solve() ([]string, bool) {
	if !r.running || r.row.Gold == "" {
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
	r.running = false
	var problems []error
	for _, p := range r.parts {
		problems = append(problems, p.component.Close())
	}
	return errors.Join(problems...)
}
