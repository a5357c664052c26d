package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
)

// Schema is the version of the file format, the first field of every line.
const Schema = 1

// Table is a small table as a metric, such as the spread of every group.
type Table struct {
	Columns []string
	Rows    [][]any
}

// Record is one line.
type Record struct {
	Step   int
	Values map[string]any // float64, string, bool, Table, or nil: it does not exist in this step
}

// Float returns a metric as a number.
func (r Record) Float(key string) (float64, bool) {
	v, ok := r.Values[key].(float64)
	return v, ok
}

// Encode makes the line of one step: one JSON object, keys in alphabetical order.
func Encode(step int, values map[string]any) ([]byte, error) {
	line := fmt.Appendf(nil, `{"schema":%d,"step":%d`, Schema, step)
	for _, key := range sortedKeys(values) {
		if key == "schema" || key == "step" {
			return nil, fmt.Errorf("metric %q: the name is reserved", key)
		}
		name, err := json.Marshal(key)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", key, err)
		}
		line = append(append(append(line, ','), name...), ':')
		if line, err = appendValue(line, values[key]); err != nil {
			return nil, fmt.Errorf("metric %q: %w", key, err)
		}
	}
	return append(line, '}', '\n'), nil
}

func sortedKeys[V any](values map[string]V) []string { return slices.Sorted(maps.Keys(values)) }

func appendValue(dst []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...), nil
	case float64:
		switch {
		case math.IsNaN(v):
			return append(dst, `"NaN"`...), nil
		case math.IsInf(v, 1):
			return append(dst, `"Infinity"`...), nil
		case math.IsInf(v, -1):
			return append(dst, `"-Infinity"`...), nil
		}
		return strconv.AppendFloat(dst, v, 'g', -1, 64), nil
	case float32:
		return appendValue(dst, float64(v))
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		text, err := json.Marshal(v)
		return append(dst, text...), err
	case Table:
		return appendTable(dst, v)
	}
	return nil, fmt.Errorf("cannot log a %T, expected a number, a string, a bool or a metrics.Table", value)
}

func appendTable(dst []byte, table Table) ([]byte, error) {
	columns, err := json.Marshal(table.Columns)
	if err != nil {
		return nil, err
	}
	dst = append(append(append(dst, `{"columns":`...), columns...), `,"rows":[`...)
	for i, row := range table.Rows {
		if len(row) != len(table.Columns) {
			return nil, fmt.Errorf("row %d has %d cells, expected %d", i, len(row), len(table.Columns))
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		for j, cell := range row {
			if j > 0 {
				dst = append(dst, ',')
			}
			if dst, err = appendValue(dst, cell); err != nil {
				return nil, fmt.Errorf("row %d: %w", i, err)
			}
		}
		dst = append(dst, ']')
	}
	return append(dst, "]}"...), nil
}

// bareNumber finds what Python writes as a number and JSON does not know.
var bareNumber = regexp.MustCompile(`([:\[,]\s*)(NaN|-?Infinity)`)

// decode reads a line of metrics.jsonl, or a row of a history of W&B, which has _step in place of schema and step.
func decode(line []byte) (Record, error) {
	var values map[string]any
	if err := json.Unmarshal(line, &values); err != nil {
		if json.Unmarshal(bareNumber.ReplaceAll(line, []byte(`$1"$2"`)), &values) != nil {
			return Record{}, fmt.Errorf("not a JSON object: %w", err)
		}
	}
	step, isHistory := values["_step"].(float64)
	if isHistory {
		values["schema"], values["step"] = float64(Schema), step
	}
	if schema := values["schema"]; schema != float64(Schema) {
		return Record{}, fmt.Errorf("schema is %v, expected %d: written by another version of Gyre", schema, Schema)
	}
	step, ok := values["step"].(float64)
	if !ok || step != math.Trunc(step) {
		return Record{}, fmt.Errorf("step is %v, expected an integer", values["step"])
	}
	delete(values, "schema")
	delete(values, "step")
	delete(values, "_step")
	for key, value := range values {
		values[key] = restore(value)
	}
	return Record{Step: int(step), Values: values}, nil
}

func restore(value any) any {
	switch v := value.(type) {
	case string:
		switch v {
		case "NaN":
			return math.NaN()
		case "Infinity":
			return math.Inf(1)
		case "-Infinity":
			return math.Inf(-1)
		}
	case map[string]any:
		return restoreTable(v)
	}
	return value
}

func restoreTable(object map[string]any) any {
	columns, hasColumns := object["columns"].([]any)
	rows, hasRows := object["rows"].([]any)
	if !hasColumns || !hasRows {
		return object
	}
	var table Table
	for _, column := range columns {
		table.Columns = append(table.Columns, fmt.Sprint(column))
	}
	for _, row := range rows {
		cells, _ := row.([]any)
		for j := range cells {
			cells[j] = restore(cells[j])
		}
		table.Rows = append(table.Rows, cells)
	}
	return table
}
