package metrics

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of wandb_internal.Record, and of the records in it.
const (
	wandbNum, wandbHistory, wandbSummary, wandbFiles, wandbRun, wandbExit, wandbHeader = 1, 2, 3, 6, 17, 18, 21

	wandbKey, wandbNestedKey, wandbJSON = 1, 2, 16
)

// wandB appends to an offline run as wandb writes it: a LevelDB log of protocol buffers, in wandb/offline-run-DATE-ID/run-ID.wandb. Tables lie
// beside it, in files/media.
type wandB struct {
	dir     string
	log     *recordLog
	num     uint64
	begun   time.Time
	summary map[string]string // the latest value of each metric, in JSON
}

// openWandB opens or starts the offline run of a folder, without the history of steps after run.Last, and tells the last step it has (-1: none).
func openWandB(parent string, run Run) (Sink, int, error) {
	now := time.Now()
	w := &wandB{begun: now, summary: map[string]string{}}
	found, err := filepath.Glob(filepath.Join(parent, "offline-run-*-"+run.ID))
	if err != nil {
		return nil, 0, err
	}
	if len(found) > 0 {
		w.dir = found[len(found)-1]
	} else {
		w.dir = filepath.Join(parent, "offline-run-"+now.Format("20060102_150405")+"-"+run.ID)
	}
	if err := os.MkdirAll(filepath.Join(w.dir, "files"), 0o755); err != nil {
		return nil, 0, err
	}
	path := filepath.Join(w.dir, "run-"+run.ID+".wandb")
	last := -1
	w.log, err = openRecordLog(path, func(record []byte) bool {
		step, isHistory := wandbStep(record)
		if isHistory && step > run.Last || isWandBEnd(record) {
			return false
		}
		if history, ok := field(record, wandbHistory); ok {
			last = step
			eachItem(history, func(key, value []byte) { w.summary[string(key)] = string(value) })
		}
		w.num++
		return true
	})
	if err == nil && w.num == 0 {
		err = w.begin(run)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return w, last, nil
}

// begin writes who wrote the file, and the run with its configuration.
func (w *wandB) begin(run Run) error {
	version := appendTagged(appendTagged(nil, 1, []byte("gyre")), 2, []byte("0.12.0"))
	if err := w.write(wandbHeader, appendTagged(nil, 1, version)); err != nil {
		return err
	}
	config := map[string]any{}
	if err := toml.Unmarshal(run.Config, &config); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	var items []byte
	for _, key := range sortedKeys(config) {
		value, err := json.Marshal(config[key])
		if err != nil {
			return err
		}
		items = appendTagged(items, 1, appendTagged(appendTagged(nil, wandbKey, []byte(key)), wandbJSON, value))
	}
	host, _ := os.Hostname() // a label: empty where unknown
	about := appendTagged(nil, 1, []byte(run.ID))
	about = appendTagged(about, 3, []byte("gyre"))
	about = appendTagged(about, 4, items)
	about = appendTagged(about, 8, []byte(run.Name))
	about = appendTagged(about, 13, []byte(host))
	start := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(w.begun.Unix()))
	return w.write(wandbRun, appendTagged(about, 17, start))
}

// Log implements Sink.
func (w *wandB) Log(step int, values map[string]any) error {
	now := time.Now()
	history := []byte{}
	add := func(key, value string) {
		w.summary[key] = value
		history = appendTagged(history, 1, appendTagged(appendTagged(nil, wandbNestedKey, []byte(key)), wandbJSON, []byte(value)))
	}
	add("_step", strconv.Itoa(step))
	add("_timestamp", jsonNumber(float64(now.UnixMicro())/1e6))
	add("_runtime", jsonNumber(now.Sub(w.begun).Seconds()))
	for _, name := range sortedKeys(values) {
		value, err := w.json(name, step, values[name])
		if err != nil {
			return fmt.Errorf("metric %q: %w", name, err)
		}
		add(name, value)
	}
	number := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(step))
	return w.write(wandbHistory, appendTagged(history, 2, number))
}

// Close implements Sink.
func (w *wandB) Close() error {
	var items []byte
	for _, key := range sortedKeys(w.summary) {
		items = appendTagged(items, 1, appendTagged(appendTagged(nil, wandbNestedKey, []byte(key)), wandbJSON, []byte(w.summary[key])))
	}
	return errors.Join(w.write(wandbSummary, items), w.write(wandbExit, nil), w.log.close())
}

func (w *wandB) write(kind protowire.Number, content []byte) error {
	w.num++
	record := protowire.AppendVarint(protowire.AppendTag(nil, wandbNum, protowire.VarintType), w.num)
	return w.log.write(appendTagged(record, kind, content))
}

// json is a value as wandb writes it: NaN and infinities bare, a table as a file.
func (w *wandB) json(name string, step int, value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "null", nil
	case string:
		text, err := json.Marshal(v)
		return string(text), err
	case bool:
		return strconv.FormatBool(v), nil
	case Table:
		return w.table(name, step, v)
	}
	if x, ok := float(value); ok {
		return jsonNumber(x), nil
	}
	return "", fmt.Errorf("cannot log a %T, expected a number, a string, a bool or a metrics.Table", value)
}

func jsonNumber(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// table writes a table's file and refers to it.
func (w *wandB) table(name string, step int, table Table) (string, error) {
	var data bytes.Buffer
	data.WriteString(`{"columns":`)
	columns, err := json.Marshal(table.Columns)
	if err != nil {
		return "", err
	}
	data.Write(columns)
	data.WriteString(`,"data":[`)
	for i, row := range table.Rows {
		cells := make([]string, len(row))
		for j, cell := range row {
			if cells[j], err = w.json(name, step, cell); err != nil {
				return "", err
			}
		}
		if i > 0 {
			data.WriteByte(',')
		}
		fmt.Fprintf(&data, "[%s]", strings.Join(cells, ","))
	}
	data.WriteString("]}")
	path := filepath.Join("media", "table", fmt.Sprintf("%s_%d.table.json", name, step))
	file := filepath.Join(w.dir, "files", path)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(file, data.Bytes(), 0o644); err != nil {
		return "", err
	}
	item := appendTagged(nil, 1, []byte(path))
	item = protowire.AppendVarint(protowire.AppendTag(item, 3, protowire.VarintType), 2) // media
	if err := w.write(wandbFiles, appendTagged(nil, 1, item)); err != nil {
		return "", err
	}
	sum := sha256.Sum256(data.Bytes())
	reference, err := json.Marshal(map[string]any{"_type": "table-file", "path": path, "sha256": hex.EncodeToString(sum[:]),
		"size": data.Len(), "ncols": len(table.Columns), "nrows": len(table.Rows)})
	return string(reference), err
}

// wandbStep reads the step of a history record; false for another record.
func wandbStep(record []byte) (step int, ok bool) {
	history, ok := field(record, wandbHistory)
	if !ok {
		return 0, false
	}
	content, _ := field(history, 2) // HistoryStep, whose field 1 is the number; 0 is left out
	if number, kind, n := protowire.ConsumeTag(content); n > 0 && number == 1 && kind == protowire.VarintType {
		v, _ := protowire.ConsumeVarint(content[n:])
		return int(v), true
	}
	return 0, true
}

func isWandBEnd(record []byte) bool {
	_, summary := field(record, wandbSummary)
	_, exit := field(record, wandbExit)
	return summary || exit
}

// field finds the last field of a number that holds bytes.
func field(message []byte, wanted protowire.Number) (content []byte, ok bool) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			break
		}
		size := protowire.ConsumeFieldValue(number, kind, message[n:])
		if size < 0 {
			break
		}
		if number == wanted && kind == protowire.BytesType {
			content, _ = protowire.ConsumeBytes(message[n:])
			ok = true
		}
		message = message[n+size:]
	}
	return content, ok
}

// WandBRun is what a .wandb file says of a run.
type WandBRun struct {
	ID, Name string
	Records  []Record // in the order of steps
}

// ReadWandB reads an offline run, ours or wandb's own. What a crash tore off at the end is left out. Tables whose files are missing are left out too.
func ReadWandB(path string) (run WandBRun, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return run, err
	}
	if !bytes.HasPrefix(data, wandbMagic) {
		return run, fmt.Errorf("%s is not a run of wandb: it begins with %.8q, expected %q", path, data, wandbMagic)
	}
	files := filepath.Join(filepath.Dir(path), "files")
	byStep := map[int]map[string]any{}
	for at := int64(len(wandbMagic)); ; {
		record, end, ok := nextRecord(data, at)
		if !ok {
			break
		}
		at = end
		if about, ok := field(record, wandbRun); ok {
			id, _ := field(about, 1)
			name, _ := field(about, 8)
			run.ID, run.Name = string(id), string(name)
		}
		if history, ok := field(record, wandbHistory); ok {
			step, _ := wandbStep(record)
			if byStep[step] == nil {
				byStep[step] = map[string]any{}
			}
			eachItem(history, func(key, text []byte) {
				if decoded, ok := DecodeExported(text); ok {
					if value, ok := Exported(decoded, files); ok {
						byStep[step][string(key)] = value
					}
				}
			})
		}
	}
	for _, step := range slices.Sorted(maps.Keys(byStep)) {
		run.Records = append(run.Records, Record{Step: step, Values: byStep[step]})
	}
	return run, nil
}

// eachItem visits the values of a history record, in JSON.
func eachItem(history []byte, visit func(key, value []byte)) {
	for rest := history; len(rest) > 0; {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[n:])
		if size < 0 {
			return
		}
		if number == 1 && kind == protowire.BytesType {
			item, _ := protowire.ConsumeBytes(rest[n:])
			key, ok := field(item, wandbKey)
			if !ok {
				key, _ = field(item, wandbNestedKey)
			}
			value, _ := field(item, wandbJSON)
			visit(key, value)
		}
		rest = rest[n+size:]
	}
}

// bareNumber finds what Python writes as a number and JSON does not know.
var bareNumber = regexp.MustCompile(`([:\[,]\s*|^)(NaN|-?Infinity)`)

// DecodeExported decodes JSON as Python writes it, with bare NaN and infinities, which become texts.
func DecodeExported(text []byte) (value any, ok bool) {
	if json.Unmarshal(text, &value) == nil {
		return value, true
	}
	err := json.Unmarshal(bareNumber.ReplaceAll(text, []byte(`$1"$2"`)), &value)
	return value, err == nil
}

// Exported is a decoded value as a metric: a number, NaN and infinities among them, a text, a flag, or a table, in place or as a file below a
// folder. ok is false for null and what cannot be a metric.
func Exported(v any, folder string) (value any, ok bool) {
	switch v := v.(type) {
	case float64, bool:
		return v, true
	case string:
		return restore(v), true
	case map[string]any:
		if path, isFile := v["path"].(string); isFile && v["_type"] == "table-file" && filepath.IsLocal(path) {
			data, err := os.ReadFile(filepath.Join(folder, path))
			if err != nil {
				return nil, false
			}
			decoded, _ := DecodeExported(data)
			return Exported(decoded, folder)
		}
		if rows, ok := v["data"]; ok {
			v["rows"] = rows
		}
		table, isTable := restoreTable(v).(Table)
		return table, isTable
	}
	return nil, false
}
