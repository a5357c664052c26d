package analysis

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/run/metrics"
)

// WriteFiles puts an analysed step into a folder: gradient_analysis_metrics_step_N.json with all its metrics and tables, the groups' spreads
// (gradient_analysis_bucket_rv_table_step_N.csv, see WriteSpreads) and, with their gradient norms,
// gradient_analysis_group_table_step_N.csv; "prefilter_" stands before "step" for the batch before the filter. Files are replaced whole.
func WriteFiles(dir string, step int, values map[string]any) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	write := func(what, extension string, content func(io.Writer) error) error {
		return atomicfile.Write(filepath.Join(dir, fmt.Sprintf("gradient_analysis_%sstep_%d.%s", what, step, extension)), content)
	}
	if err := write("metrics_", "json", func(w io.Writer) error { return WriteJSON(w, step, values) }); err != nil {
		return err
	}
	profile, _ := values["grad_analysis/profile"].(string)
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
		err := errors.Join(
			write("bucket_rv_table_"+before, "csv", func(w io.Writer) error { return WriteSpreads(w, profile, []metrics.Table{table}) }),
			write("group_table_"+before, "csv", func(w io.Writer) error { return writeCSV(w, profile, table.Columns, table) }))
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteSpreads writes every group's spread: bucket, group_id, reward_std, and the profile of the analysis.
func WriteSpreads(w io.Writer, profile string, tables []metrics.Table) error {
	return writeCSV(w, profile, []string{"bucket", "group_id", "reward_std"}, tables...)
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

// writeCSV writes the wanted columns of the tables' rows, and last the profile. A column that a table lacks is empty.
func writeCSV(w io.Writer, profile string, columns []string, tables ...metrics.Table) error {
	rows := [][]string{append(slices.Clone(columns), "profile")}
	for _, table := range tables {
		for _, row := range table.Rows {
			var cells []string
			for _, name := range columns {
				i := slices.Index(table.Columns, name)
				switch {
				case i < 0 || i >= len(row):
					cells = append(cells, "")
				default:
					cells = append(cells, text(row[i]))
				}
			}
			rows = append(rows, append(cells, profile))
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// text is a cell in CSV; whole numbers look the same whether they were just measured or read back.
func text(cell any) string {
	switch v := cell.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(cell)
}
