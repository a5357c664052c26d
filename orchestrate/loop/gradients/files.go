package gradients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
	"gyre/internal/table"
	"gyre/orchestrate/run/metrics"
)

// WriteFiles puts an analysed step into a folder: gradient_analysis_metrics_step_N.json with all its metrics and
// tables, the groups' reward standard deviations (gradient_analysis_bucket_rv_table_step_N.csv) and, with their
// gradient norms, gradient_analysis_group_table_step_N.csv; "prefilter_" stands before "step" for the batch before
// the filter. Files are replaced whole.
func WriteFiles(dir string, step int, line metrics.Line) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	write := func(what, extension string, content func(io.Writer) error) error {
		name := fmt.Sprintf("gradient_analysis_%sstep_%d.%s", what, step, extension)
		return atomicfile.Write(filepath.Join(dir, name), content)
	}
	failed := write("metrics_", "json", func(w io.Writer) error { return writeJSON(w, step, line) })
	for prefix, before := range map[string]string{"grad_norm": "", "grad_norm_prefilter": "prefilter_"} {
		groups, ok := line[prefix+"/group_table"].(metrics.Table)
		if !ok {
			continue
		}
		for what, columns := range map[string]int{"bucket_rv_table_": 3, "group_table_": len(groups.Columns)} {
			failed = errors.Join(failed, write(what+before, "csv", func(w io.Writer) error {
				return writeCSV(w, groups, columns, line["grad_analysis/profile"])
			}))
		}
	}
	return failed
}

// writeJSON writes a line as one indented object, with NaN and infinities as in metrics.jsonl.
func writeJSON(w io.Writer, step int, line metrics.Line) error {
	text, err := metrics.Encode(step, line)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// writeCSV writes the first columns of the groups, and last the profile.
func writeCSV(w io.Writer, groups metrics.Table, columns int, profile any) error {
	t := table.New(append(groups.Columns[:columns:columns], "profile")...)
	for _, row := range groups.Rows {
		t.Add(append(row[:columns:columns], profile)...)
	}
	return t.WriteCSV(w)
}
