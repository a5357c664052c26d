package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// Schema is the version of the file format, the first field of every line.
const Schema = 1

// Table is a small table as a metric, such as the spread of every group.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`
}

// Record is one line.
type Record struct {
	Step   int
	Values map[string]any // float64, string, bool, Table, or nil: it does not exist in this step
	end    int64          // where its line ends in the file
}

// Float returns a metric as a number.
func (r Record) Float(key string) (float64, bool) {
	v, ok := r.Values[key].(float64)
	return v, ok
}

// Encode makes the line of one step: one JSON object, keys in alphabetical order.
func Encode(step int, values map[string]any) ([]byte, error) {
	object := make(map[string]any, len(values))
	for key, value := range values {
		if key == "schema" || key == "step" {
			return nil, fmt.Errorf("metric %q: the name is reserved", key)
		}
		encoded, err := encodable(value)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", key, err)
		}
		object[key] = encoded
	}
	metrics, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	line := fmt.Appendf(nil, `{"schema":%d,"step":%d`, Schema, step)
	if len(object) > 0 {
		line = append(line, ',')
	}
	return append(append(line, metrics[1:]...), '\n'), nil
}

// encodable is a metric as encoding/json can write it.
func encodable(value any) (any, error) {
	switch v := value.(type) {
	case nil, string, bool, int:
		return v, nil
	case float64:
		return jsonNumber(v), nil
	case Table:
		rows := make([][]any, len(v.Rows))
		for i, row := range v.Rows {
			if len(row) != len(v.Columns) {
				return nil, fmt.Errorf("row %d has %d cells, expected %d", i, len(row), len(v.Columns))
			}
			rows[i] = make([]any, len(row))
			for j, cell := range row {
				var err error
				if rows[i][j], err = encodable(cell); err != nil {
					return nil, fmt.Errorf("row %d: %w", i, err)
				}
			}
		}
		return Table{v.Columns, rows}, nil
	}
	return nil, fmt.Errorf("cannot log a %T, expected a number, a string, a bool or a metrics.Table", value)
}

// jsonNumber is a number that may be none of JSON's.
type jsonNumber float64

// notJSON are the numbers that JSON lacks, by the strings that stand for them.
var notJSON = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// MarshalJSON writes the shortest decimal that reads back to the same number.
func (n jsonNumber) MarshalJSON() ([]byte, error) {
	x := float64(n)
	switch {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Infinity"`), nil
	}
	return strconv.AppendFloat(nil, x, 'g', -1, 64), nil
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
		if number, ok := notJSON[v]; ok {
			return number
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
