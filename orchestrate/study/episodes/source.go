// Package episodes reads the episodes of a run for people: an index of each file, the filters over it, and an episode
// as it was seen: messages, thoughts, actions, tool calls, boards, rewards, and the numbers of every token.
//
//	Source ──Files──▶ rundir.Stored ──Index──▶ Entry ──(Filter)──▶ View ──▶ Text, JSON, the pages of package ui
//
// Nothing is written. Text of episodes is not trusted: it stays text in every form.
package episodes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gyre/internal/lines"
	"gyre/internal/quote"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/rundir"
)

// Source is where episodes come from: the folder of a run, or one file of them. It is safe for concurrent use.
type Source struct {
	Path string // as it was given

	run       rundir.Run // its folder only; "" for a file without a run
	file      string     // "" where Path is a run
	model     string
	opened    sync.Once
	config    *config.Config  // nil where there is none that can be read
	tokenizer *chat.Tokenizer // nil where none was found, and why
	problem   error

	mu      sync.Mutex // guards indexes
	indexes map[string]index
}

type index struct {
	changed time.Time
	size    int64
	entries []Entry
}

// mostIndexes bounds the files whose indexes are kept.
const mostIndexes = 64

// Open names a run, or a JSONL file of episodes, which may lie in a run or beside one (gyre eval --output). model is a
// folder with a tokenizer; "": the run's own.
func Open(path, model string) (*Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("expected a run or a JSONL file of episodes: %w", err)
	}
	s := &Source{Path: path, model: model, indexes: map[string]index{}}
	if s.run.Dir = filepath.Clean(path); !info.IsDir() {
		s.file, s.run.Dir = path, filepath.Dir(path)
		if filepath.Base(s.run.Dir) == "rollouts" {
			s.run.Dir = filepath.Dir(s.run.Dir)
		}
	}
	return s, nil
}

// Files lists what a source has by step; of one file the kind is "file".
func (s *Source) Files() []rundir.Stored {
	if s.file != "" {
		return []rundir.Stored{{Kind: "file", Path: s.file}}
	}
	return s.run.Rollouts()
}

// File is that of a kind and a step. Without a kind it is the first that there is of step, validation and analysis;
// without a step (-1) the last.
func (s *Source) File(kind string, step int) (rundir.Stored, error) {
	files := s.Files()
	for _, wanted := range []string{kind, "step", "file", "validation", "analysis"} {
		for _, f := range slices.Backward(files) {
			if wanted != "" && f.Kind == wanted && (step < 0 || f.Step == step || f.Kind == "file") {
				return f, nil
			}
		}
		if kind != "" {
			break
		}
	}
	if len(files) == 0 {
		return rundir.Stored{}, fmt.Errorf("%s has no episodes: expected rollouts/step_N.jsonl, which "+
			"run.save_rollouts = \"all\" writes", s.Path)
	}
	var there []string
	for _, f := range files[max(0, len(files)-5):] {
		there = append(there, fmt.Sprintf("%s %d", f.Kind, f.Step))
	}
	what := cmp.Or(kind, "episode file")
	if step >= 0 {
		what += fmt.Sprintf(" of step %d", step)
	}
	return rundir.Stored{}, fmt.Errorf("%s has no %s; the last that it has: %q", s.Path, what, there)
}

// Entry is an episode in an index.
type Entry struct {
	Kind       string             `json:"kind"`
	Step       int                `json:"step"`
	Group      int                `json:"group"`
	Episode    int                `json:"episode"`
	Tag        string             `json:"tag"`
	Label      string             `json:"label,omitempty"`
	Seed       int64              `json:"seed"`
	Task       string             `json:"task"` // tag/seed: equal where the environment is
	Score      float64            `json:"score"`
	Success    bool               `json:"success"`
	Unjudged   bool               `json:"unjudged,omitempty"` // nobody knows whether it is one
	Stop       string             `json:"stop"`
	Turns      int                `json:"turns"`
	Tokens     int                `json:"tokens"`
	Components map[string]float64 `json:"components,omitempty"`

	file       rundir.Stored
	at, length int64 // of its line
}

// Index lists the episodes of a file in its order. It is kept until the file changes.
func (s *Source) Index(f rundir.Stored) ([]Entry, error) {
	info, err := os.Stat(f.Path)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	known, ok := s.indexes[f.Path]
	s.mu.Unlock()
	if ok && known.changed.Equal(info.ModTime()) && known.size == info.Size() {
		return known.entries, nil
	}
	var list []Entry
	for line, err := range lines.Read(f.Path) {
		if err != nil {
			return nil, err
		}
		if len(line.Text) == 0 {
			continue
		}
		e, err := newEntry(line.Text, len(list))
		if err != nil {
			return nil, line.Fault(err)
		}
		e.Kind, e.file, e.at, e.length = f.Kind, f, line.From, line.To-line.From
		list = append(list, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.indexes) >= mostIndexes {
		clear(s.indexes)
	}
	s.indexes[f.Path] = index{info.ModTime(), info.Size(), list}
	return list, nil
}

// newEntry reads of a line what an index has; tokens are counted and not decoded.
func newEntry(line []byte, position int) (Entry, error) {
	var own struct {
		Entry
		Episode    *int                    `json:"episode"`
		Score      *float64                `json:"score"`
		Success    *bool                   `json:"success"`
		IDs        json.RawMessage         `json:"ids"`
		Turns      []json.RawMessage       `json:"turns"`
		Rewards    [][2]float64            `json:"rewards"`
		Components map[string][][2]float64 `json:"components"`
	}
	if err := json.Unmarshal(line, &own); err != nil {
		return Entry{}, fmt.Errorf("not an episode: %w", quote.JSON(err))
	}
	e := own.Entry
	e.Turns, e.Tokens = len(own.Turns), bytes.Count(own.IDs, []byte{','})+1
	e.Episode, e.Score = position, total(own.Rewards)
	if e.Task = fmt.Sprintf("%s/%d", e.Tag, e.Seed); own.Episode != nil {
		e.Episode = *own.Episode
	}
	if e.Unjudged = own.Success == nil; !e.Unjudged {
		e.Success = *own.Success
	}
	if own.Score != nil {
		e.Score = *own.Score
	}
	for name, pairs := range own.Components {
		if e.Components == nil {
			e.Components = map[string]float64{}
		}
		e.Components[name] = total(pairs)
	}
	return e, nil
}

func total(pairs [][2]float64) (sum float64) {
	for _, pair := range pairs {
		sum += pair[1]
	}
	return sum
}

// decode reads the whole episode.
func (e Entry) decode() (*episode.Episode, error) {
	file, err := os.Open(e.file.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	line := make([]byte, e.length)
	if _, err := file.ReadAt(line, e.at); err != nil {
		return nil, err
	}
	full, err := episode.Decode(bytes.TrimSpace(line), e.Episode)
	if err != nil {
		return nil, fmt.Errorf("%s, episode %d: %w", e.file.Path, e.Episode, err)
	}
	return full, nil
}

// open finds the run's configuration and the tokenizer, which its checkpoints and its model have.
func (s *Source) open() {
	s.opened.Do(func() {
		places := []string{s.model}
		for _, c := range slices.Backward(s.run.Checkpoints()) {
			places = append(places, filepath.Join(c.Path, "actor"))
		}
		if c, err := config.Load(s.run.File("config.toml"), nil); err == nil {
			s.config = c
			places = append(places, c.Model.Path)
		}
		s.problem = errors.New("the run has neither checkpoints nor a readable configuration: gyre episodes --model " +
			"names a folder with a tokenizer")
		for _, place := range places {
			if place == "" {
				continue
			}
			if s.tokenizer, s.problem = chat.Load(place); s.problem == nil {
				return
			}
		}
	})
}

// Problem is why no tokenizer was found; nil where there is one.
func (s *Source) Problem() error {
	s.open()
	return s.problem
}

// Decode is what tokens say, or their numbers where there is no tokenizer.
func (s *Source) Decode(ids []int32) string {
	if s.Problem() != nil {
		return strings.Trim(fmt.Sprint(ids), "[]")
	}
	return s.tokenizer.Decode(ids, false)
}
