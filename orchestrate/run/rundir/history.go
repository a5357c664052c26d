package rundir

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/run/metrics"
)

// historyFiles are where a folder may hold the exported history of a run of Weights & Biases, the best first.
var historyFiles = []string{"run-*.wandb", "*.wandb", "*history*.jsonl", "*history*.json", "*history*.csv", "*.jsonl", "*.csv"}

// ErrNoHistory means that a folder holds neither a run nor an exported history.
var ErrNoHistory = errors.New("expected a run directory (runs/NAME), a metrics.jsonl, or a folder with the history of a W&B run " +
	"(run-ID.wandb, or history as .jsonl, .json or .csv with a column _step)")

// readHistory reads an exported history as a run. Rows of one step are one record.
func readHistory(dir string) (*Run, error) {
	for _, pattern := range historyFiles {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			continue
		}
		if len(found) > 1 {
			return nil, fmt.Errorf("%s holds several histories (%s): name the file", dir, strings.Join(found, ", "))
		}
		return readHistoryFile(found[0])
	}
	return nil, fmt.Errorf("%s: %w", dir, ErrNoHistory)
}

// isHistory tells whether a file is read as an exported history.
func isHistory(path string) bool {
	extension := filepath.Ext(path)
	return filepath.Base(path) != metrics.File && slices.Contains([]string{".wandb", ".json", ".csv"}, extension) ||
		extension == ".jsonl" && strings.Contains(filepath.Base(path), "history")
}

func readHistoryFile(path string) (*Run, error) {
	dir := filepath.Dir(path)
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{Dir: dir, Name: filepath.Base(absolute), Info: &Info{}}
	if filepath.Ext(path) == ".wandb" {
		run, err := metrics.ReadWandB(path)
		if err != nil {
			return nil, err
		}
		r.Records, r.Info.ID, r.Name = run.Records, run.ID, cmp.Or(run.Name, run.ID, r.Name)
	} else {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rows, err := historyRows(path, data)
		if err != nil {
			return nil, err
		}
		if r.Records, err = recordsOf(path, rows, dir); err != nil {
			return nil, err
		}
		r.Info = &Info{}
		// Who exported the history may have noted whose it is; else the folder is called NAME_ID, or only NAME.
		if info, err := ReadInfo(dir); err == nil && info != nil {
			r.Info, r.Name = info, cmp.Or(info.Name, r.Name)
		} else if i := strings.LastIndexByte(r.Name, '_'); i > 0 && len(r.Name)-i-1 == 8 {
			r.Info.ID, r.Name = r.Name[i+1:], r.Name[:i]
		}
	}
	if len(r.Records) == 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrEmpty)
	}
	return r, nil
}

// historyRows are a file's rows, whatever their form.
func historyRows(path string, data []byte) ([]map[string]any, error) {
	switch filepath.Ext(path) {
	case ".csv":
		return csvRows(path, data)
	case ".json":
		decoded, _ := metrics.DecodeExported(data)
		list, ok := decoded.([]any)
		var rows []map[string]any
		for _, element := range list {
			row, isRow := element.(map[string]any)
			ok = ok && isRow
			rows = append(rows, row)
		}
		if !ok {
			return nil, fmt.Errorf("%s: expected a list of objects, one per step", path)
		}
		return rows, nil
	}
	var rows []map[string]any
	for number, line := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		value, _ := metrics.DecodeExported(line)
		row, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s:%d: not a JSON object", path, number+1)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func csvRows(path string, data []byte) ([]map[string]any, error) {
	reader := csv.NewReader(bytes.NewReader(data))
	header, err := reader.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var rows []map[string]any
	for {
		cells, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		row := map[string]any{}
		for i, cell := range cells {
			if number, err := strconv.ParseFloat(cell, 64); err == nil {
				row[header[i]] = number
			} else if value, ok := metrics.DecodeExported([]byte(cell)); ok {
				row[header[i]] = value
			} else if cell != "" {
				row[header[i]] = cell
			}
		}
		rows = append(rows, row)
	}
}

// recordsOf joins rows of one step.
func recordsOf(path string, rows []map[string]any, folder string) ([]metrics.Record, error) {
	byStep := map[int]map[string]any{}
	var steps []int
	for i, row := range rows {
		step, ok := row["_step"].(float64)
		if !ok {
			if step, ok = row["Step"].(float64); !ok {
				if step, ok = row["step"].(float64); !ok {
					return nil, fmt.Errorf("%s: row %d has no _step", path, i+1)
				}
			}
		}
		if byStep[int(step)] == nil {
			byStep[int(step)] = map[string]any{}
			steps = append(steps, int(step))
		}
		for key, v := range row {
			if value, ok := metrics.Exported(v, folder); ok {
				byStep[int(step)][key] = value
			}
		}
	}
	slices.Sort(steps)
	var out []metrics.Record
	for _, step := range steps {
		out = append(out, metrics.Record{Step: step, Values: byStep[step]})
	}
	return out, nil
}
