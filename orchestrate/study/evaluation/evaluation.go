// Package evaluation makes tables and figures of what validations of checkpoints found.
package evaluation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
)

// Result is what the validation of a checkpoint found.
type Result struct {
	Name string
	session.Evaluation
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

// Metrics is a table of the metrics that people read, a column per result; successes and passes come first, each with
// the interval of its tasks. random says that each group's state was played once. Means over the episodes in which a
// metric is not zero are left to programs: that of a success is 1.
func Metrics(list []Result, sources []config.Env, random bool) *table.Table {
	t := table.New("metric")
	var shares, others []string
	byTask := make([]map[string]clusters, len(list))
	for i, r := range list {
		head := r.Name
		if len(list) == 1 {
			head = "value"
		}
		t.Columns = append(t.Columns, table.Column{Name: r.Name, Head: head, Format: "%.4f"})
		names, own := passes(r.Episodes)
		shares, byTask[i] = append(shares, names...), own
		for name := range r.Metrics {
			switch _, share := own[name]; {
			case share, strings.Contains(name, "/non-zero/"):
			case strings.HasSuffix(name, "/success"):
				shares = append(shares, name)
			default:
				others = append(others, name)
			}
		}
	}
	slices.SortStableFunc(shares, func(a, b string) int { return cmp.Compare(path.Base(b)[:1], path.Base(a)[:1]) })
	slices.Sort(others)
	shown := map[string]bool{}
	for _, name := range append(shares, others...) {
		row := []any{name}
		for i, r := range list {
			v, ok := r.Metrics[name]
			if c, share := byTask[i][name]; share {
				row = append(row, c.cell())
			} else if n := episodesOf(sources, name, random); ok && n > 0 {
				cell := table.Share(v, n)
				cell.Text += fmt.Sprintf(" of %d", n)
				row = append(row, cell)
			} else if ok {
				row = append(row, v)
			} else {
				row = append(row, nil)
			}
		}
		if !shown[name] {
			t.Add(row...)
		}
		shown[name] = true
	}
	return t
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
	all := table.New("checkpoint", "parameters", "turn", "episodes", "solved", "success")
	all.Columns[5].Low, all.Columns[5].High = "low", "high"
	brief := table.New("solved by turn", "parameters")
	for _, turn := range shown {
		brief.Columns = append(brief.Columns, table.Column{Name: fmt.Sprint(turn)})
	}
	p := figure.Panel{X: figure.Axis{Label: "turns", Integer: true},
		Y: figure.Axis{Label: "levels solved by then (%)", Low: 0, High: 1}}
	for i, r := range list {
		row, n := []any{r.Name, Parameters(r.Parameters)}, len(r.Episodes)
		own := &table.Table{Columns: all.Columns}
		for turn, solved := range rollout.SolvedBy(r.Episodes, most) {
			share := table.Share(float64(solved)/float64(n), n)
			own.Add(r.Name, r.Parameters, turn+1, n, solved, share)
			if slices.Contains(shown, turn+1) {
				row = append(row, share)
			}
		}
		brief.Add(row...)
		all.Rows = append(all.Rows, own.Rows...)
		p.Add(figure.Curve(own, "turn", "success", r.Name, figure.Color(i)).Times(100))
	}
	f := figure.Figure{Title: title, Columns: 1, Width: 5.2, Height: 3, Panels: []figure.Panel{p},
		Caption: fmt.Sprintf("bands: 95 %% intervals over %d episodes", len(list[0].Episodes))}
	path := filepath.Join(dir, "success_by_turns")
	paths := []string{path + ".csv", path + ".json", path + ".png"}
	return brief, paths, cmp.Or(atomicfile.Write(paths[0], all.WriteCSV),
		atomicfile.Write(paths[1], func(w io.Writer) error { return table.WriteJSONList(w, all) }),
		f.Save(paths[2], figure.PrintDPI))
}
