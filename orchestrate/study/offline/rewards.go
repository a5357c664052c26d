package offline

import (
	"encoding/json"
	"fmt"
	"os"

	"gyre/envs/reward"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/loop/tracking"
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
func (h *History) Table() *table.Table {
	t := table.New("step", "correctness", "format", "length_reward", "actual_length", "correct", "samples")
	for _, s := range h.Steps {
		x := s.Statistics
		t.Add(s.Step, float64(x.AvgCorrectness), float64(x.AvgFormat), float64(x.AvgLengthReward),
			float64(x.AvgActualLength), x.CorrectCount, x.TotalSamples)
	}
	return t
}

// Figure draws the trends.
func (h *History) Figure(name string) figure.Figure {
	marks := []figure.Mark{{Label: "correctness", Color: figure.Color(0)}, {Label: "format", Color: figure.Color(1)},
		{Label: "length", Color: figure.Color(2)}, {Color: figure.Color(0)}}
	for _, s := range h.Steps {
		for i, v := range []reward.Float{s.Statistics.AvgCorrectness, s.Statistics.AvgFormat,
			s.Statistics.AvgLengthReward, s.Statistics.AvgActualLength} {
			marks[i].Add(float64(s.Step), float64(v))
		}
	}
	x := figure.Axis{Label: "step", Integer: true}
	return figure.Figure{Name: name, Title: fmt.Sprintf("Rewards of %s on %s", h.Metadata.Model, h.Metadata.Dataset),
		Columns: 2, Width: 3.4, Height: 2.3, Panels: []figure.Panel{
			{Title: "Rewards", X: x, Y: figure.Axis{Label: "mean"}, Marks: marks[:3]},
			{Title: "Length of replies", X: x, Y: figure.Axis{Label: "characters"}, Marks: marks[3:]}}}
}
