package analysis

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/metrics"
)

// WriteFiles puts an analysed step into a folder: gradient_analysis_metrics_step_N.json with all its metrics and tables, and for each group table
// the file gradient_analysis_bucket_rv_table_step_N.csv (…_prefilter_step_N.csv before the filter). Files are replaced whole.
func WriteFiles(dir string, step int, values map[string]any) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(dir, fmt.Sprintf("gradient_analysis_metrics_step_%d.json", step))
	if err := atomicfile.Write(path, func(w io.Writer) error { return WriteJSON(w, step, values) }); err != nil {
		return err
	}
	for name, value := range values {
		prefix, ok := strings.CutSuffix(name, "/group_table")
		table, isTable := value.(metrics.Table)
		if !ok || !isTable {
			continue
		}
		before := strings.TrimPrefix(strings.TrimPrefix(prefix, "grad_norm"), "_")
		if before != "" {
			before += "_"
		}
		path := filepath.Join(dir, fmt.Sprintf("gradient_analysis_bucket_rv_table_%sstep_%d.csv", before, step))
		if err := atomicfile.Write(path, func(w io.Writer) error { return writeCSV(w, table) }); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes metrics and tables as one indented object, with NaN and infinities as in metrics.jsonl.
func WriteJSON(w io.Writer, step int, values map[string]any) error {
	line, err := metrics.Encode(step, values)
	if err != nil {
		return err
	}
	var object any
	if err := json.Unmarshal(line, &object); err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(object)
}

func writeCSV(w io.Writer, table metrics.Table) error {
	rows := [][]string{table.Columns}
	for _, row := range table.Rows {
		var cells []string
		for _, cell := range row {
			if v, ok := cell.(float64); ok {
				cells = append(cells, strconv.FormatFloat(v, 'g', -1, 64))
				continue
			}
			cells = append(cells, fmt.Sprint(cell))
		}
		rows = append(rows, cells)
	}
	return csv.NewWriter(w).WriteAll(rows)
}
