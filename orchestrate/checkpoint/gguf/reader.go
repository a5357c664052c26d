package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"
)

// reader reads the header in order, remembering the first error and how much of the file is left.
type reader struct {
	source   *bufio.Reader
	at, size int64
	elements int // of metadata arrays so far
	err      error
}

func newReader(source io.ReaderAt, size int64) *reader {
	return &reader{source: bufio.NewReaderSize(io.NewSectionReader(source, 0, size), 1<<16), size: size}
}

// bytes reads n bytes into a new slice; n is checked against the rest of the file before anything is allocated.
func (r *reader) bytes(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(r.size-r.at) {
		r.err = fmt.Errorf("byte %d: needs %d bytes, the file has %d left: truncated?", r.at, n, r.size-r.at)
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.source, b); err != nil {
		r.err = err
		return nil
	}
	r.at += int64(n)
	return b
}

// fixed reads a number of 1 to 8 bytes.
func (r *reader) fixed(width int) uint64 {
	var b [8]byte
	if r.err != nil {
		return 0
	}
	if int64(width) > r.size-r.at {
		r.err = fmt.Errorf("byte %d: the file ends within a number: truncated?", r.at)
		return 0
	}
	if _, r.err = io.ReadFull(r.source, b[:width]); r.err != nil {
		return 0
	}
	r.at += int64(width)
	return binary.LittleEndian.Uint64(b[:])
}

func (r *reader) uint32() uint32 { return uint32(r.fixed(4)) }
func (r *reader) uint64() uint64 { return r.fixed(8) }

// count reads a number of things of at least minimum bytes each, so it cannot promise more than the file could hold.
func (r *reader) count(what string, limit, minimum uint64) int {
	n := r.uint64()
	if r.err == nil && (n > limit || n > uint64(r.size-r.at)/minimum) {
		r.err = fmt.Errorf("%d %s in a file of %d bytes (at most %d are read): truncated?", n, what, r.size, limit)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) text(limit uint64) string {
	n := r.uint64()
	if r.err == nil && n > limit {
		r.err = fmt.Errorf("byte %d: a text of %d bytes, at most %d are read", r.at, n, limit)
	}
	b := r.bytes(n)
	if r.err == nil && !utf8.Valid(b) {
		r.err = fmt.Errorf("byte %d: text is not valid UTF-8", r.at-int64(n))
	}
	return string(b)
}
