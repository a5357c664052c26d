// Package tracking records what the replies of a run earned (rewards.jsonl and rldynamic's all_rewards.json) and how
// likely validation replies were (validation_step_N.json). Package offline reads these files.
package tracking

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"gyre/envs/reward"
	"gyre/internal/atomicfile"
)

// The files of a tracker's folder.
const (
	HistoryFile = "all_rewards.json" // the rldynamic project's schema
	RowsFile    = "rewards.jsonl"    // one line per reply, with more
)

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

type trackedSample struct {
	Index        int          `json:"idx"`
	Correctness  reward.Float `json:"correctness"`
	Format       reward.Float `json:"format"`
	LengthReward reward.Float `json:"length_reward"`
	ActualLength int          `json:"actual_length"`
}

type trackedStep struct {
	Step       int             `json:"step"`
	Timestamp  string          `json:"timestamp"`
	NumSamples int             `json:"num_samples"`
	Statistics Statistics      `json:"statistics"`
	Samples    []trackedSample `json:"samples"`
}

// Tracked is one reply to record. Correctness, Format and LengthReward are those of the history; Components are all
// that the reply earned, by name and unweighted.
type Tracked struct {
	Step         int                     `json:"step"` // updates done before it: 0 for the first step
	GlobalStep   int                     `json:"global_step"`
	Timestamp    string                  `json:"timestamp"`
	Index        int                     `json:"idx"` // in the step's batch
	Prompt       string                  `json:"prompt"`
	Tag          string                  `json:"tag"`
	Seed         int64                   `json:"seed"`
	Group        int                     `json:"group"`
	Rollout      int                     `json:"rollout"` // of its group
	Correctness  reward.Float            `json:"correctness"`
	Format       reward.Float            `json:"format"`
	LengthReward reward.Float            `json:"length_reward"`
	ActualLength int                     `json:"actual_length"`
	Tokens       int                     `json:"tokens"`
	Truncated    bool                    `json:"truncated"`
	Extracted    *string                 `json:"extracted"`
	Total        reward.Float            `json:"total"`
	Components   map[string]reward.Float `json:"components"`
}

// Complete fills in what follows from the reply's text: the extracted answer, its length, and those of the history's
// three rewards that the reply has no component for.
func (r *Tracked) Complete(text string, success bool) {
	r.ActualLength = utf8.RuneCountInString(text)
	for _, how := range []string{"boxed", "tag", "hash"} {
		if content, found := reward.Extract(text, how); found {
			r.Extracted = &content
			break
		}
	}
	component := func(name string, otherwise float64) reward.Float {
		if value, has := r.Components[name]; has {
			return value
		}
		return reward.Float(otherwise)
	}
	right := 0.0
	if success {
		right = 1
	}
	r.Correctness = component("correctness", right)
	r.Format = component("format", reward.FormatCues(text))
	r.LengthReward = component("length", reward.LengthScore(r.ActualLength, reward.RLDynamicLength))
}

// Tracker records the rewards of a run's replies. It belongs to one goroutine.
type Tracker struct {
	dir     string
	history history
	rows    *os.File
	replies int // in the history
	written int // of them at the last writing of the history
}

// OpenTracker opens the files in dir for a run that has done some steps: what is recorded of later ones is dropped,
// because they are done again.
func OpenTracker(dir, model, dataset string, done int) (*Tracker, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	t := &Tracker{dir: dir, history: history{Metadata{CreatedAt: now(), Model: model, Dataset: dataset},
		[]trackedStep{}}}
	var before struct{ Metadata Metadata }
	text, err := os.ReadFile(filepath.Join(dir, HistoryFile))
	if err == nil && done > 0 && json.Unmarshal(text, &before) == nil {
		t.history.Metadata.CreatedAt = before.Metadata.CreatedAt
	}
	if t.rows, err = os.OpenFile(filepath.Join(dir, RowsFile), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	kept := t.readRows(done)
	_, seekErr := t.rows.Seek(kept, io.SeekStart)
	if err := errors.Join(t.rows.Truncate(kept), seekErr, t.save()); err != nil {
		return nil, errors.Join(err, t.rows.Close())
	}
	return t, nil
}

// readRows rebuilds the history from the lines of steps before done and returns where they end.
func (t *Tracker) readRows(done int) (end int64) {
	lines := bufio.NewReader(t.rows)
	var step []Tracked
	for {
		line, err := lines.ReadBytes('\n')
		var row Tracked
		if err != nil || json.Unmarshal(line, &row) != nil || row.Step >= done {
			t.append(step)
			return end // before the rest of a line that a kill cut
		}
		if len(step) > 0 && row.Step != step[0].Step {
			t.append(step)
			step = nil
		}
		step, end = append(step, row), end+int64(len(line))
	}
}

// append adds a step to the history in memory.
func (t *Tracker) append(rows []Tracked) (st Statistics) {
	if len(rows) == 0 {
		return st
	}
	s, n := trackedStep{Step: rows[0].Step, Timestamp: rows[0].Timestamp, NumSamples: len(rows)}, len(rows)
	st.TotalSamples = n
	for i, r := range rows {
		s.Samples = append(s.Samples, trackedSample{i, r.Correctness, r.Format, r.LengthReward, r.ActualLength})
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
		*sum /= reward.Float(n)
	}
	s.Statistics = st
	t.history.Steps = append(t.history.Steps, s)
	t.replies += n
	return st
}

// Add records a step's replies.
func (t *Tracker) Add(rows []Tracked) (Statistics, error) {
	timestamp := now()
	var lines bytes.Buffer
	out := json.NewEncoder(&lines)
	out.SetEscapeHTML(false)
	for i := range rows {
		rows[i].Timestamp = timestamp
		if err := out.Encode(rows[i]); err != nil {
			return Statistics{}, err
		}
	}
	if _, err := t.rows.Write(lines.Bytes()); err != nil {
		return Statistics{}, fmt.Errorf("tracking rewards: %w", err)
	}
	statistics := t.append(rows)
	// The history is one JSON value and has to be written as a whole: once a step while it is small, and then as
	// often as keeps the bytes written within twenty times its size.
	const small = 25_000
	if t.replies < small || t.replies-t.written > t.replies/20 {
		return statistics, t.save()
	}
	return statistics, nil
}

// save writes the history.
func (t *Tracker) save() error {
	t.history.Metadata.LastSaved, t.written = now(), t.replies
	return atomicfile.Write(filepath.Join(t.dir, HistoryFile), func(w io.Writer) error {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return out.Encode(t.history)
	})
}

// Flush puts everything that was recorded on the disk. A nil or closed Tracker has nothing.
func (t *Tracker) Flush() error {
	if t == nil || t.rows == nil {
		return nil
	}
	return errors.Join(t.rows.Sync(), t.save())
}

// Close writes what is left. It may be called twice, and on a nil Tracker.
func (t *Tracker) Close() error {
	if t == nil || t.rows == nil {
		return nil
	}
	err := errors.Join(t.Flush(), t.rows.Close())
	t.rows = nil
	return err
}
