package plot

import (
	"errors"
	"io/fs"
	"slices"

	"gyre/internal/figure"
	"gyre/orchestrate/loop/versions"
	"gyre/orchestrate/run/rundir"
)

// Timeline shows who was at work while a run went on, from its schedule; no panels where it has none.
func Timeline(r *rundir.Run) (figure.Figure, error) {
	f := figure.Figure{Name: "timeline.png", Title: r.Name, Columns: 1, Height: 1.75}
	schedule, err := versions.Read(r.File(versions.File))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(schedule.Steps) == 0 {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	layers := []figure.Mark{
		{Kind: figure.Area, Color: figure.Blue, Label: "samples"},
		{Kind: figure.Area, Color: figure.Vermilion, Label: "trains"},
		{Kind: figure.Area, Color: figure.Yellow, Label: "waits for environments"},
		{Kind: figure.Area, Color: figure.Grey, Label: "other"},
	}
	blocked := figure.Mark{Kind: figure.Line, Color: figure.Ink, Label: "replies wait for the trainer"}
	add := func(from, to float64, shares ...float64) {
		if to <= from {
			return
		}
		height := 0.0
		for i := range layers {
			height = 1
			if i < len(layers)-1 {
				height = min(sum(shares[:i+1])/(to-from), 1)
			}
			layers[i].Add(from, height)
			layers[i].Add(to, height)
		}
		blocked.Add(from, min(shares[3]/(to-from), 1))
		blocked.Add(to, min(shares[3]/(to-from), 1))
	}
	for group := range slices.Chunk(schedule.Steps, (len(schedule.Steps)+bins-1)/bins) {
		var before, beside [4]float64 // samples, trains, waits; replies wait
		for _, s := range group {
			before[0], before[2] = before[0]+s.Sampling.Before, before[2]+s.Waiting.Before
			beside[0], beside[3] = beside[0]+s.Sampling.Beside, beside[3]+s.Waiting.Beside
			beside[1] += s.Changed - s.Closed - s.Sampling.Beside
		}
		if first := group[0]; len(group) == 1 {
			add(first.Begun, first.Closed, before[:]...)
			add(first.Closed, first.Changed, beside[:]...)
			continue
		}
		for i := range before {
			before[i] += beside[i]
		}
		add(group[0].Begun, group[len(group)-1].Changed, before[:]...)
	}
	slices.Reverse(layers)
	f.Panels = []figure.Panel{{Title: "Who was at work", X: figure.Axis{Label: "seconds of the run"},
		Y: figure.Axis{Label: "share of the time", High: 1}, Marks: append(layers, blocked)}}
	return f, nil
}

func sum(list []float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}
