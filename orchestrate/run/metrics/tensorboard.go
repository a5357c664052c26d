package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// tensorBoard writes an event file: TFRecords that each hold a tensorflow.Event. Numbers become scalars, strings and
// tables texts.
type tensorBoard struct{ file *os.File }

// openTensorBoard starts the event file of a run anew, with the steps that metrics.jsonl has.
func openTensorBoard(run string) (*tensorBoard, error) {
	dir := filepath.Join(run, "tensorboard")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(dir, "events.out.tfevents.gyre"))
	if err != nil {
		return nil, err
	}
	t := &tensorBoard{file}
	version := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "brain.Event:2")
	if err := t.event(0, version); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for record, err := range Read(filepath.Join(run, File)) {
		if err == nil {
			err = t.Log(record.Step, record.Values)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return t, nil
}

// Log implements Sink.
func (t *tensorBoard) Log(step int, values map[string]any) error {
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if values[name] == nil { // a curve with a gap
			continue
		}
		value := appendTagged(nil, 1, []byte(name))
		if x, ok := number(reflect.ValueOf(values[name])); ok {
			value = protowire.AppendTag(value, 2, protowire.Fixed32Type)
			value = protowire.AppendFixed32(value, math.Float32bits(float32(x)))
		} else {
			// A tensor of strings with the mark of the text plugin.
			tensor := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
			tensor = appendTagged(tensor, 2, nil)
			value = appendTagged(value, 8, appendTagged(tensor, 8, []byte(asText(values[name]))))
			value = appendTagged(value, 9, appendTagged(nil, 1, appendTagged(nil, 1, []byte("text"))))
		}
		summary = appendTagged(summary, 1, value)
	}
	return t.event(step, appendTagged(nil, 5, summary))
}

// Close implements Sink.
func (t *tensorBoard) Close() error { return errors.Join(t.file.Sync(), t.file.Close()) }

// event writes a tensorflow.Event: when (1), at which step (2), and what.
func (t *tensorBoard) event(step int, what []byte) error {
	data := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
	data = protowire.AppendFixed64(data, math.Float64bits(float64(time.Now().UnixMicro())/1e6))
	data = protowire.AppendVarint(protowire.AppendTag(data, 2, protowire.VarintType), uint64(step))
	data = append(data, what...)
	// A TFRecord is its length, a checksum of the length, the data and a checksum of the data.
	record := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	record = binary.LittleEndian.AppendUint32(record, masked(record))
	record = append(record, data...)
	_, err := t.file.Write(binary.LittleEndian.AppendUint32(record, masked(data)))
	return err
}

func appendTagged(dst []byte, number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(dst, number, protowire.BytesType), content)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is TFRecord's checksum: a CRC of data that itself holds CRCs would be weak.
func masked(data []byte) uint32 {
	crc := crc32.Checksum(data, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// asText is a table in Markdown, which TensorBoard shows as a table, and anything else as it is.
func asText(value any) string {
	table, ok := value.(Table)
	if !ok {
		return fmt.Sprint(value)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n", strings.Join(table.Columns, " | "))
	b.WriteString(strings.Repeat("| --- ", len(table.Columns)) + "|\n")
	for _, row := range table.Rows {
		for _, cell := range row {
			if cell == nil {
				cell = ""
			}
			fmt.Fprintf(&b, "| %v ", cell)
		}
		b.WriteString("|\n")
	}
	return b.String()
}
