package metrics

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
)

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
