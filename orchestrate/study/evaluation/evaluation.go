// Package evaluation makes tables and figures of what validations of checkpoints found.
package evaluation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/study/plot"
)

// Result is what the validation of a checkpoint found.
type Result struct {
	Name       string
	Parameters int64
	Metrics    map[string]float64
	Episodes   []*episode.Episode
}

// Parameters is a number of parameters that people read in millions.
func Parameters(n int64) table.Cell {
	if n < 10e6 {
		return table.Cell{Value: n, Text: fmt.Sprintf("%.2f M", float64(n)/1e6)}
	}
	return table.Cell{Value: n, Text: fmt.Sprintf("%.0f M", float64(n)/1e6)}
}

// WriteJSON writes an object of all metrics per result; of several, each with its name.
func WriteJSON(w io.Writer, list []Result) error {
	out := json.NewEncoder(w)
	for _, r := range list {
		object := map[string]any{}
		for name, v := range r.Metrics {
			object[name] = v
		}
		if len(list) > 1 {
			object["checkpoint"], object["parameters"] = r.Name, r.Parameters
		}
		if err := out.Encode(object); err != nil {
			return err
		}
	}
	return nil
}

// Metrics is a table of the metrics that people read, a column per result; successes come first, each with the interval
// of its episodes. random says that each group's state was played once.
func Metrics(list []Result, sources []config.Env, random bool) *table.Table {
	t := table.New("metric")
	for _, r := range list {
		head := r.Name
		if len(list) == 1 {
			head = "value"
		}
		t.Columns = append(t.Columns, table.Column{Name: r.Name, Head: head, Format: "%.4f"})
	}
	for _, name := range order(list) {
		row := []any{name}
		for _, r := range list {
			v, ok := r.Metrics[name]
			if n := episodesOf(sources, name, random); ok && n > 0 {
				cell := table.Share(v, n)
				cell.Text += fmt.Sprintf(" of %d", n)
				row = append(row, cell)
			} else if ok {
				row = append(row, v)
			} else {
				row = append(row, nil)
			}
		}
		t.Add(row...)
	}
	return t
}

// order is the names of the metrics that people read: successes first, then the rest in alphabetical order. Means over
// the episodes in which a metric is not zero are left to programs: that of a success is 1.
func order(list []Result) []string {
	names := map[string]bool{}
	for _, r := range list {
		for name := range r.Metrics {
			if !strings.Contains(name, "/non-zero/") {
				names[name] = true
			}
		}
	}
	out := slices.Sorted(maps.Keys(names))
	slices.SortStableFunc(out, func(a, b string) int {
		rank := func(name string) int {
			if strings.HasSuffix(name, "/success") {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return out
}

// episodesOf is the number of independent episodes that a share of successes is over; 0 for other metrics.
func episodesOf(sources []config.Env, name string, random bool) (n int) {
	for _, e := range sources {
		switch {
		case name != e.Tag+"/success":
		case random:
			n += e.Groups
		default:
			n += e.Groups * e.GroupSize
		}
	}
	return n
}

// ByTurns writes how many episodes were solved by which turn to a folder, as success_by_turns.csv, .json and .png. It
// returns the table of some of the turns for people, and the files' paths.
func ByTurns(title string, list []Result, sources []config.Env, dir string) (*table.Table, []string, error) {
	most := 0
	for _, e := range sources {
		most = max(most, e.MaxTurns)
	}
	shown := slices.DeleteFunc([]int{1, 2, 3, 5, 10, 15, 20, 25, 50, 100}, func(n int) bool { return n >= most })
	shown = append(shown, most)
	all := table.New("checkpoint", "parameters", "turn", "episodes", "solved", "success", "low", "high")
	brief := table.New("solved by turn", "parameters")
	for _, turn := range shown {
		brief.Columns = append(brief.Columns, table.Column{Name: fmt.Sprint(turn)})
	}
	var curves []plot.TurnCurve
	for _, r := range list {
		curve := plot.TurnCurve{Label: r.Name, Episodes: len(r.Episodes), Solved: rollout.SolvedBy(r.Episodes, most)}
		curves = append(curves, curve)
		row := []any{r.Name, Parameters(r.Parameters)}
		for turn := 1; turn <= most; turn++ {
			value, low, high := curve.Share(turn)
			all.Add(r.Name, r.Parameters, turn, curve.Episodes, curve.Solved[turn-1], value, low, high)
			if slices.Contains(shown, turn) {
				row = append(row, table.Share(value, curve.Episodes))
			}
		}
		brief.Add(row...)
	}
	drawn := plot.SuccessByTurns(title, curves)
	var paths []string
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"success_by_turns.csv", all.WriteCSV},
		{"success_by_turns.json", all.WriteJSONArray},
		{drawn.Name, func(w io.Writer) error { return drawn.PNG(w, figure.PrintDPI) }},
	} {
		path := filepath.Join(dir, f.name)
		if err := atomicfile.Write(path, f.write); err != nil {
			return nil, nil, err
		}
		paths = append(paths, path)
	}
	return brief, paths, nil
}
