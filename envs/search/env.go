// Package search asks questions whose answers stand in a corpus of documents. A policy calls the tools search and
// read, and then answers; exact match and the F1 of words with the right answers, as SQuAD counts them, are the
// reward.
package search

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"gyre/envs"
	"gyre/envs/tools"
	"gyre/internal/dataset"
)

// options are the settings of the environment.
type options struct {
	Corpus    string  `option:"corpus" doc:"file of documents: title, and text, contents, passage or sentences; none: what the questions bring with them"`
	Problems  string  `option:"problems,train_path" doc:"file of questions and answers, chosen by the seed; none: our own"`
	Instances int     `option:"max_instances" range:"[0,)" doc:"use the first questions only; 0 = all"`
	Results   int     `option:"results,max_search_results" range:"[1,)" doc:"documents that a search shows"`
	Excerpt   int     `option:"excerpt" range:"[1,)" doc:"characters that a search shows of a document"`
	MaxChars  int     `option:"max_chars,max_total_chars" range:"[1,)" doc:"characters that a call shows in all"`
	Right     float64 `option:"correct_reward" doc:"reward of an exact match"`
	Wrong     float64 `option:"incorrect_reward" doc:"reward of an answer with an F1 below the threshold"`
	Threshold float64 `option:"f1_threshold" range:"[0,)" doc:"F1 from which an answer earns it; above 1: an exact match alone"`
}

func init() {
	tag := envs.Native("search", options{Results: 5, Excerpt: 200, MaxChars: 4000, Right: 1, Threshold: 0.3}, newGame)
	envs.Register(
		tag("search", "questions with a corpus to search and to read", 10, 300, nil),
		tag("SearchQA", "the same under RAGEN's name, with longer excerpts", 10, 300,
			func(o *options) { o.Excerpt = 800 }),
	)
}

// library is what environments with the same files share; it does not change.
type library struct {
	*corpus
	questions []question
}

// files are the options that a library follows from.
type files struct {
	problems, corpus string
	instances        int
}

// own are documents and questions about islands that do not exist: nobody knows the answers without searching.
//
//go:embed corpus.jsonl questions.jsonl
var own embed.FS

// open reads the files of an environment.
func (o *options) open() (l library, err error) {
	var documents []document
	table, err := dataset.ReadOr(o.Problems, own, "questions.jsonl")
	if err == nil {
		l.questions, documents, err = readQuestions(table)
	}
	if err != nil {
		return l, fmt.Errorf("option problems: %w", err)
	}
	if n := o.Instances; n > 0 {
		l.questions = l.questions[:min(n, len(l.questions))]
	}
	if o.Corpus != "" || o.Problems == "" {
		table, err := dataset.ReadOr(o.Corpus, own, "corpus.jsonl")
		if err == nil {
			documents, err = readDocuments(table)
		}
		if err != nil {
			return l, fmt.Errorf("option corpus: %w", err)
		}
	}
	if len(documents) == 0 {
		return l, fmt.Errorf("option corpus: name a file of documents: the questions of %s bring none (column context)",
			o.Problems)
	}
	l.corpus = newCorpus(documents)
	return l, nil
}

// shown is how much of a document the policy has seen.
type shown int

const (
	found shown = iota + 1 // by a search
	whole                  // read
)

// game is the environment; it implements envs.Env and envs.Solver.
type game struct {
	tools.Conversation
	library
	options  *options
	question question
	shown    map[string]shown // by titleKey, in this episode
}

func newGame(o *options) (*game, error) {
	if o.Corpus != "" && o.Problems == "" {
		return nil, errors.New("option problems: name a file of questions for the corpus")
	}
	shared, err := envs.Shared(files{envs.FileKey(o.Problems), envs.FileKey(o.Corpus), o.Instances}, o.open)
	if err != nil {
		return nil, err
	}
	g := &game{library: shared, options: o}
	g.Offered = []tools.Tool{{
		Name: "search", Description: "Finds documents and shows how they begin.", Argument: "query",
		Meaning: "what to look for", Use: g.search,
	}, {
		Name: "read", Description: "Shows a whole document.", Argument: "title", Meaning: "the document's title",
		Use: g.read,
	}}
	return g, nil
}

func (g *game) Reset(_ context.Context, seed int64, _ int) (envs.Start, error) {
	g.question = envs.At(g.questions, seed)
	g.shown = map[string]shown{}
	return g.Ask(g.question.text), nil
}

// search is the tool of that name.
func (g *game) search(_ context.Context, query string) (string, error) {
	var text strings.Builder
	for i, h := range g.corpus.search(query, g.options.Results) {
		d := g.documents[h.document]
		entry := fmt.Sprintf("%d. %s (score %.3f)\n%s\n", i+1, d.title, h.score, cut(d.text, g.options.Excerpt))
		if text.Len() > 0 && text.Len()+len(entry) > g.options.MaxChars {
			break
		}
		text.WriteString(entry)
		g.shown[titleKey(d.title)] = max(found, g.shown[titleKey(d.title)])
	}
	if text.Len() == 0 {
		return "nothing found", nil
	}
	return cut(strings.TrimSuffix(text.String(), "\n"), g.options.MaxChars), nil
}

// read is the tool of that name. A title that no document has is looked for.
func (g *game) read(ctx context.Context, title string) (string, error) {
	i, known := g.byTitle[titleKey(title)]
	if !known {
		found, err := g.search(ctx, title)
		return fmt.Sprintf("error: no document is called %q; a search for it finds:\n%s", title, found), err
	}
	g.shown[titleKey(title)] = whole
	return cut(g.documents[i].text, g.options.MaxChars), nil
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return string(runes[:n]) + "…"
}

// written are actions as RAGEN's policies write them.
var written = regexp.MustCompile(`(?s)^(search|read|finish)\[(.*)\]$`)

// Step carries out a tool call, or takes an answer and ends the episode.
func (g *game) Step(ctx context.Context, action string) (envs.Result, error) {
	if match := written.FindStringSubmatch(strings.TrimSpace(action)); match != nil {
		switch action = match[2]; match[1] {
		case "search":
			action = tools.CallOf(g.Offered[0], match[2])
		case "read":
			action = tools.CallOf(g.Offered[1], match[2])
		}
	}
	r, isCall, err := g.Call(ctx, action)
	if isCall || err != nil {
		return r, err
	}
	if strings.TrimSpace(action) == "" {
		return envs.Result{}, nil
	}
	exact, f1 := judge(action, g.question.answers)
	r.Components = []envs.Component{{Name: "exact_match", Value: envs.Indicator(exact)}, {Name: "f1", Value: f1}}
	outcome := "The answer is wrong."
	switch r.Reward = g.options.Wrong; {
	case exact:
		outcome, r.Reward = "The answer is right.", g.options.Right
	case f1 > 0 && f1 >= g.options.Threshold:
		outcome, r.Reward = "The answer is nearly right.", f1
	}
	r.Success = exact || r.Reward > 0
	if n := len(g.question.support); n > 0 {
		r.Info = map[string]float64{"final_support_found": 0}
		for _, title := range g.question.support {
			if g.shown[titleKey(title)] > 0 {
				r.Info["final_support_found"] += 1 / float64(n)
			}
		}
	}
	return g.Answered(r, outcome)
}

// Solve searches for the question, reads the documents that lead to the answer, and answers.
func (g *game) Solve() ([]string, bool) {
	switch {
	case !g.Running():
		return nil, false
	case g.Calls() == 0:
		return []string{tools.CallOf(g.Offered[0], g.question.text)}, true
	}
	for _, title := range g.question.support {
		if _, known := g.byTitle[titleKey(title)]; known && g.shown[titleKey(title)] != whole {
			return []string{tools.CallOf(g.Offered[1], title)}, true
		}
	}
	return []string{g.question.answers[0]}, true
}
