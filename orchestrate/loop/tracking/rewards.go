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
	"io/fs"
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
	fill := func(to *reward.Float, name string, otherwise float64) {
		value, has := r.Components[name]
		if !has {
			value = reward.Float(otherwise)
		}
		*to = value
	}
	right := 0.0
	if success {
		right = 1
	}
	fill(&r.Correctness, "correctness", right)
	fill(&r.Format, "format", reward.FormatCues(text))
	fill(&r.LengthReward, "length", reward.LengthScore(r.ActualLength, reward.RLDynamicLength))
}

// Tracker records the rewards of a run's replies. It belongs to one goroutine.
type Tracker struct {
	dir      string
	metadata Metadata
	rows     *os.File
	steps    [][]byte // encoded, as they stand in the history
	size     int      // of steps
	written  int      // size at the last writing of the history
}

// OpenTracker opens the files in dir for a run that has done some steps: what is recorded of later ones is dropped,
// because they are done again.
func OpenTracker(dir, model, dataset string, done int) (*Tracker, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	t := &Tracker{dir: dir, metadata: Metadata{CreatedAt: now(), Model: model, Dataset: dataset}}
	var before struct{ Metadata Metadata }
	text, err := os.ReadFile(filepath.Join(dir, HistoryFile))
	if err == nil && done > 0 && json.Unmarshal(text, &before) == nil {
		t.metadata.CreatedAt = before.Metadata.CreatedAt
	}
	path := filepath.Join(dir, RowsFile)
	kept, err := t.readRows(path, done)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if t.rows, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	_, seekErr := t.rows.Seek(kept, io.SeekStart)
	if err := errors.Join(t.rows.Truncate(kept), seekErr, t.save()); err != nil {
		return nil, errors.Join(err, t.rows.Close())
	}
	return t, nil
}

// readRows rebuilds the history from the lines of steps before done and returns where they end.
func (t *Tracker) readRows(path string, done int) (kept int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 1<<16)
	var step []Tracked
	end := int64(0) // of the lines read
	for {
		line, readErr := lines.ReadBytes('\n')
		var row Tracked
		if readErr != nil || json.Unmarshal(line, &row) != nil || row.Step >= done {
			break // the end, or the rest of a line that a kill cut
		}
		if len(step) > 0 && row.Step != step[0].Step {
			if err := t.append(step); err != nil {
				return 0, err
			}
			step, kept = nil, end
		}
		step = append(step, row)
		end += int64(len(line))
	}
	if len(step) > 0 {
		return end, t.append(step)
	}
	return kept, nil
}

// append adds a step to the history in memory.
func (t *Tracker) append(rows []Tracked) error {
	text, err := json.MarshalIndent(historyOf(rows), "    ", "  ")
	t.steps = append(t.steps, text)
	t.size += len(text)
	return err
}

func historyOf(rows []Tracked) trackedStep {
	n := float64(len(rows))
	s := trackedStep{Step: rows[0].Step, Timestamp: rows[0].Timestamp, NumSamples: len(rows)}
	var correctness, format, length, characters float64
	for i, r := range rows {
		s.Samples = append(s.Samples, trackedSample{i, r.Correctness, r.Format, r.LengthReward, r.ActualLength})
		correctness += float64(r.Correctness)
		format += float64(r.Format)
		length += float64(r.LengthReward)
		characters += float64(r.ActualLength)
		if r.Format > 0 {
			s.Statistics.FormatValidCount++
		}
	}
	st := &s.Statistics
	st.AvgCorrectness, st.AvgFormat = reward.Float(correctness/n), reward.Float(format/n)
	st.AvgLengthReward, st.AvgActualLength = reward.Float(length/n), reward.Float(characters/n)
	st.CorrectCount, st.TotalSamples = int(correctness), len(rows)
	return s
}

// Add records a step's replies.
func (t *Tracker) Add(rows []Tracked) (Statistics, error) {
	if len(rows) == 0 {
		return Statistics{}, nil
	}
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
	if err := t.append(rows); err != nil {
		return Statistics{}, err
	}
	// The history is one JSON value and has to be written as a whole: once a step while it is small, and then as
	// often as keeps the bytes written within twenty times its size.
	const small = 4 << 20
	if t.size < small || t.size-t.written > t.size/20 {
		return historyOf(rows).Statistics, t.save()
	}
	return historyOf(rows).Statistics, nil
}

// save writes the history.
func (t *Tracker) save() error {
	t.metadata.LastSaved = now()
	head, err := json.MarshalIndent(t.metadata, "  ", "  ")
	if err != nil {
		return err
	}
	t.written = t.size
	return atomicfile.Write(filepath.Join(t.dir, HistoryFile), func(w io.Writer) error {
		out := bufio.NewWriter(w)
		fmt.Fprintf(out, "{\n  \"metadata\": %s,\n  \"steps\": [", head)
		for i, step := range t.steps {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString("\n    ")
			out.Write(step)
		}
		if len(t.steps) > 0 {
			out.WriteString("\n  ")
		}
		out.WriteString("]\n}\n")
		return out.Flush()
	})
}

// Flush puts everything that was recorded on the disk.
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
