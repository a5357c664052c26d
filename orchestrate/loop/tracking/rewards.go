// Package tracking records what the replies of a run earned (rldynamic's all_rewards.json) and how likely validation
// replies were (validation_step_N.json). Package offline reads these files.
package tracking

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"gyre/envs"
	"gyre/envs/reward"
	"gyre/internal/atomicfile"
)

// HistoryFile is the file of a tracker's folder, in the rldynamic project's schema.
const HistoryFile = "all_rewards.json"

// now is the local time in the format of the history.
func now() string { return time.Now().Format("2006-01-02 15:04:05") }

// Metadata heads the history.
type Metadata struct {
	CreatedAt string `json:"created_at"`
	Model     string `json:"model"`
	Dataset   string `json:"dataset"`
	LastSaved string `json:"last_saved"`
}

// Statistics of a step's replies.
type Statistics struct {
	AvgCorrectness   reward.Float `json:"avg_correctness"`
	AvgFormat        reward.Float `json:"avg_format"`
	AvgLengthReward  reward.Float `json:"avg_length_reward"`
	AvgActualLength  reward.Float `json:"avg_actual_length"`
	CorrectCount     int          `json:"correct_count"`
	FormatValidCount int          `json:"format_valid_count"`
	TotalSamples     int          `json:"total_samples"`
}

// String is one line for people.
func (s Statistics) String() string {
	return fmt.Sprintf("correctness %.3f (%d/%d), format %.3f (valid: %d), length reward %.3f, "+
		"actual length %.1f chars", s.AvgCorrectness, s.CorrectCount, s.TotalSamples, s.AvgFormat, s.FormatValidCount,
		s.AvgLengthReward, s.AvgActualLength)
}

type history struct {
	Metadata Metadata      `json:"metadata"`
	Steps    []trackedStep `json:"steps"`
}

// Tracked is what one reply earned.
type Tracked struct {
	Index        int          `json:"idx"` // in the step's batch
	Correctness  reward.Float `json:"correctness"`
	Format       reward.Float `json:"format"`
	LengthReward reward.Float `json:"length_reward"`
	ActualLength int          `json:"actual_length"`
}

type trackedStep struct {
	Step       int        `json:"step"` // updates done before it: 0 for the first step
	Timestamp  string     `json:"timestamp"`
	NumSamples int        `json:"num_samples"`
	Statistics Statistics `json:"statistics"`
	Samples    []Tracked  `json:"samples"`
}

// Track is the record of a reply: its reward components, and what follows from its text for those that it lacks.
func Track(index int, text string, components map[string]float64, success bool) Tracked {
	length := utf8.RuneCountInString(text)
	component := func(name string, otherwise float64) reward.Float {
		if value, has := components[name]; has {
			return reward.Float(value)
		}
		return reward.Float(otherwise)
	}
	return Tracked{Index: index, Correctness: component("correctness", envs.Indicator(success)),
		Format: component("format", reward.FormatCues(text)), ActualLength: length,
		LengthReward: component("length", reward.LengthScore(length, reward.RLDynamicLength))}
}

// Tracker records the rewards of a run's replies. It belongs to one goroutine.
type Tracker struct {
	path    string
	history history
	replies int // in the history
	written int // of them at the last writing
}

// OpenTracker opens the history in dir for a run that has done some steps: what is recorded of later ones is dropped,
// because they are done again.
func OpenTracker(dir, model, dataset string, done int) (*Tracker, error) {
	t := &Tracker{path: filepath.Join(dir, HistoryFile),
		history: history{Metadata{CreatedAt: now(), Model: model, Dataset: dataset}, []trackedStep{}}}
	text, err := os.ReadFile(t.path)
	if done > 0 && err == nil {
		err = json.Unmarshal(text, &t.history)
		t.history.Metadata.Model, t.history.Metadata.Dataset = model, dataset
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("tracking rewards: %s: %w", t.path, err)
	}
	t.history.Steps = slices.DeleteFunc(t.history.Steps, func(s trackedStep) bool { return s.Step >= done })
	for _, s := range t.history.Steps {
		t.replies += s.NumSamples
	}
	return t, t.save()
}

// Add records a step's replies.
func (t *Tracker) Add(step int, rows []Tracked) (st Statistics, err error) {
	n := len(rows)
	st.TotalSamples = n
	for _, r := range rows {
		st.AvgCorrectness += r.Correctness
		st.AvgFormat += r.Format
		st.AvgLengthReward += r.LengthReward
		st.AvgActualLength += reward.Float(r.ActualLength)
		if r.Format > 0 {
			st.FormatValidCount++
		}
	}
	st.CorrectCount = int(st.AvgCorrectness)
	for _, sum := range []*reward.Float{&st.AvgCorrectness, &st.AvgFormat, &st.AvgLengthReward, &st.AvgActualLength} {
		*sum /= reward.Float(max(n, 1))
	}
	t.history.Steps = append(t.history.Steps, trackedStep{step, now(), n, st, rows})
	t.replies += n
	// The history is one JSON value and has to be written as a whole: once a step while it is small, and then as
	// often as keeps the bytes written within twenty times its size.
	const small = 25_000
	if t.replies < small || t.replies-t.written > t.replies/20 {
		return st, t.save()
	}
	return st, nil
}

// save writes the history.
func (t *Tracker) save() error {
	t.history.Metadata.LastSaved, t.written = now(), t.replies
	return atomicfile.Write(t.path, func(w io.Writer) error {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(t.history)
	})
}

// Flush puts everything that was recorded on the disk. A nil Tracker has nothing.
func (t *Tracker) Flush() error {
	if t == nil {
		return nil
	}
	return t.save()
}
