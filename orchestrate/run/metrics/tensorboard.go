package metrics

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// tensorBoard appends to an event file: TFRecords that each hold a tensorflow.Event. Numbers become scalars, strings
// and tables texts.
type tensorBoard struct{ file *os.File }

// openTensorBoard opens or starts the event file of a folder, without the events of steps after keep, and tells the
// last step it has (-1: none).
func openTensorBoard(dir string, keep int) (Sink, int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, 0, err
	}
	path := filepath.Join(dir, "events.out.tfevents.gyre")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, 0, err
	}
	end, last, err := eventsUntil(file, keep)
	if err == nil {
		err = file.Truncate(end)
	}
	if err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	t := &tensorBoard{file}
	if err == nil && end == 0 {
		err = t.record(event(0, protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType),
			"brain.Event:2")))
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return t, last, nil
}

// eventsUntil finds where the whole records of steps up to keep end, and the last of these steps.
func eventsUntil(file io.Reader, keep int) (end int64, last int, err error) {
	last = -1
	reader := bufio.NewReader(file)
	for {
		data, err := readRecord(reader)
		if err != nil {
			if errors.Is(err, errRecord) || errors.Is(err, io.EOF) {
				err = nil // torn by a crash, or the end
			}
			return end, last, err
		}
		step, isStep := stepOf(data)
		if isStep && step > keep {
			return end, last, nil
		}
		if isStep {
			last = step
		}
		end += int64(len(data)) + recordFrame
	}
}

// Log implements Sink.
func (t *tensorBoard) Log(step int, values map[string]any) error {
	var summary []byte
	for _, name := range sortedKeys(values) {
		if values[name] == nil { // a curve with a gap
			continue
		}
		value := appendTagged(nil, 1, []byte(name))
		if x, ok := float(values[name]); ok {
			value = protowire.AppendTag(value, 2, protowire.Fixed32Type)
			value = protowire.AppendFixed32(value, math.Float32bits(float32(x)))
		} else {
			text, err := asText(values[name])
			if err != nil {
				return fmt.Errorf("metric %q: %w", name, err)
			}
			// A tensor of strings with the mark of the text plugin.
			tensor := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
			tensor = appendTagged(tensor, 2, nil)
			value = appendTagged(value, 8, appendTagged(tensor, 8, []byte(text)))
			value = appendTagged(value, 9, appendTagged(nil, 1, appendTagged(nil, 1, []byte("text"))))
		}
		summary = appendTagged(summary, 1, value)
	}
	return t.record(event(step, appendTagged(nil, 5, summary)))
}

// Close implements Sink.
func (t *tensorBoard) Close() error { return errors.Join(t.file.Sync(), t.file.Close()) }

// event is a tensorflow.Event: when (1), at which step (2), and what.
func event(step int, what []byte) []byte {
	out := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
	out = protowire.AppendFixed64(out, math.Float64bits(float64(time.Now().UnixMicro())/1e6))
	out = protowire.AppendVarint(protowire.AppendTag(out, 2, protowire.VarintType), uint64(step))
	return append(out, what...)
}

// stepOf reads the step of an event with a summary; false for another event, such as the file's version.
func stepOf(event []byte) (step int, ok bool) {
	for len(event) > 0 {
		number, kind, n := protowire.ConsumeTag(event)
		if n < 0 {
			return 0, false
		}
		event = event[n:]
		if number == 2 && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(event)
			step = int(v)
		}
		ok = ok || number == 5
		if n = protowire.ConsumeFieldValue(number, kind, event); n < 0 {
			return 0, false
		}
		event = event[n:]
	}
	return step, ok
}

func appendTagged(dst []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

// A TFRecord is its length, a checksum of the length, the data and a checksum of the data.
const recordFrame = 8 + 4 + 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is TFRecord's checksum: a CRC of data that itself holds CRCs would be weak.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

func (t *tensorBoard) record(data []byte) error {
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, len(data)+recordFrame), uint64(len(data)))
	out = binary.LittleEndian.AppendUint32(out, masked(out))
	out = append(out, data...)
	_, err := t.file.Write(binary.LittleEndian.AppendUint32(out, masked(data)))
	return err
}

// errRecord means that a record is cut off or damaged.
var errRecord = errors.New("damaged record")

func readRecord(r io.Reader) ([]byte, error) {
	head := make([]byte, 12)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, cutOff(err)
	}
	length := binary.LittleEndian.Uint64(head)
	if masked(head[:8]) != binary.LittleEndian.Uint32(head[8:]) {
		return nil, errRecord
	}
	data := make([]byte, length+4)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, cutOff(err)
	}
	if masked(data[:length]) != binary.LittleEndian.Uint32(data[length:]) {
		return nil, errRecord
	}
	return data[:length], nil
}

func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errRecord
	}
	return err
}

// asText is a string as it is, and a table in Markdown, which TensorBoard shows as a table.
func asText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case Table:
		var b strings.Builder
		row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
		row(v.Columns)
		rule := make([]string, len(v.Columns))
		for i := range rule {
			rule[i] = "---"
		}
		row(rule)
		for _, cells := range v.Rows {
			texts := make([]string, len(cells))
			for i, cell := range cells {
				if cell != nil {
					texts[i] = fmt.Sprint(cell)
				}
			}
			row(texts)
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("cannot log a %T, expected a number, a string, a bool or a metrics.Table", value)
}

// float is a metric as a number; a flag counts as 0 or 1.
func float(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, true
	case float32:
		return float64(v), true
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}
