package metrics

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
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
		if isHistory {
			last = step
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
	content, _ := field(history, 2)
	for len(content) > 0 {
		number, kind, n := protowire.ConsumeTag(content)
		if n < 0 || number != 1 || kind != protowire.VarintType {
			break
		}
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

// recordLog is the log format of LevelDB: blocks in which records, or pieces of them, have a checksum, a length and a kind.
type recordLog struct {
	file   *os.File
	offset int64
}

const (
	logBlock = 32768
	logFrame = 4 + 2 + 1
)

// wandbMagic starts the file; blocks are counted from its beginning.
var wandbMagic = []byte(":W&B\xe1\xbe\x00")

// openRecordLog opens or starts a log, and drops everything from the first record on that keep refuses, or that is not whole.
func openRecordLog(path string, keep func([]byte) bool) (*recordLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	l := &recordLog{file: file}
	data, err := io.ReadAll(file)
	if err == nil && bytes.HasPrefix(data, wandbMagic) {
		l.offset = int64(len(wandbMagic))
		for {
			record, end, ok := nextRecord(data, l.offset)
			if !ok || !keep(record) {
				break
			}
			l.offset = end
		}
	}
	if err == nil {
		err = file.Truncate(l.offset)
	}
	if err == nil {
		_, err = file.Seek(l.offset, io.SeekStart)
	}
	if err == nil && l.offset == 0 {
		err = l.put(wandbMagic)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

// nextRecord joins the pieces of the record at an offset.
func nextRecord(data []byte, at int64) (record []byte, end int64, ok bool) {
	for {
		if left := logBlock - at%logBlock; left < logFrame {
			at += left
		}
		if at+logFrame > int64(len(data)) {
			return nil, 0, false
		}
		head := data[at : at+logFrame]
		at += logFrame
		size := int64(binary.LittleEndian.Uint16(head[4:]))
		if at+size > int64(len(data)) {
			return nil, 0, false
		}
		piece := data[at : at+size]
		if crc32.Update(crc32.ChecksumIEEE(head[6:7]), crc32.IEEETable, piece) != binary.LittleEndian.Uint32(head) {
			return nil, 0, false
		}
		record = append(record, piece...)
		at += size
		if kind := head[6]; kind == 1 || kind == 4 { // whole, or the last piece
			return record, at, true
		}
	}
}

func (l *recordLog) write(record []byte) error {
	for first := true; first || len(record) > 0; first = false {
		left := logBlock - l.offset%logBlock
		if left < logFrame {
			if err := l.put(make([]byte, left)); err != nil {
				return err
			}
			left = logBlock
		}
		piece := record[:min(int64(len(record)), left-logFrame)]
		record = record[len(piece):]
		kind := byte(3) // a piece in the middle
		switch last := len(record) == 0; {
		case first && last:
			kind = 1
		case first:
			kind = 2
		case last:
			kind = 4
		}
		head := binary.LittleEndian.AppendUint32(nil, crc32.Update(crc32.ChecksumIEEE([]byte{kind}), crc32.IEEETable, piece))
		head = append(binary.LittleEndian.AppendUint16(head, uint16(len(piece))), kind)
		if err := l.put(append(head, piece...)); err != nil {
			return err
		}
	}
	return nil
}

func (l *recordLog) put(data []byte) error {
	n, err := l.file.Write(data)
	l.offset += int64(n)
	return err
}

func (l *recordLog) close() error { return errors.Join(l.file.Sync(), l.file.Close()) }
