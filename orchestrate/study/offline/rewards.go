package offline

import (
	"encoding/json"
	"fmt"
	"math"
	"os"

	"gyre/envs/reward"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/study/plot"
)

// History is an all_rewards.json.
type History struct {
	Metadata tracking.Metadata
	Steps    []struct {
		Step       int
		Statistics *tracking.Statistics
	}
}

// ReadHistory reads an all_rewards.json, ours or rldynamic's.
func ReadHistory(path string) (*History, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var h History
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("%s: not a history of rewards: %w", path, err)
	}
	if len(h.Steps) == 0 {
		return nil, fmt.Errorf("%s: it has no steps", path)
	}
	for i, s := range h.Steps {
		if s.Statistics == nil {
			return nil, fmt.Errorf("%s: entry %d of steps has no statistics", path, i)
		}
	}
	return &h, nil
}

// Table is the history for reading and for CSV.
func (h *History) Table() (header []string, rows [][]any) {
	header = []string{"step", "correctness", "format", "length_reward", "actual_length", "correct", "samples"}
	for _, s := range h.Steps {
		t := s.Statistics
		rows = append(rows, []any{s.Step, float64(t.AvgCorrectness), float64(t.AvgFormat), float64(t.AvgLengthReward), float64(t.AvgActualLength),
			t.CorrectCount, t.TotalSamples})
	}
	return header, rows
}

// Figure draws the trends.
func (h *History) Figure(name string) plot.Picture {
	var x []float64
	columns := make([][]float64, 4)
	for _, s := range h.Steps {
		x = append(x, float64(s.Step))
		for i, v := range []reward.Float{s.Statistics.AvgCorrectness, s.Statistics.AvgFormat, s.Statistics.AvgLengthReward, s.Statistics.AvgActualLength} {
			columns[i] = append(columns[i], float64(v))
		}
	}
	title := fmt.Sprintf("Rewards of %s on %s", h.Metadata.Model, h.Metadata.Dataset)
	return plot.Lines(name, title, "", 2,
		plot.Chart{Title: "Rewards", X: "step", Y: "mean", Reference: math.NaN(), Lines: []plot.Line{
			{Label: "correctness", X: x, Y: columns[0]}, {Label: "format", X: x, Y: columns[1]}, {Label: "length", X: x, Y: columns[2]}}},
		plot.Chart{Title: "Length of replies", X: "step", Y: "characters", Reference: math.NaN(), Lines: []plot.Line{{Label: "mean", X: x, Y: columns[3]}}})
}
