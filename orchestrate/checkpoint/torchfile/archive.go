package torchfile

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"gyre/orchestrate/checkpoint/pickle"
)

// maxEntries bounds the storages of one archive.
const maxEntries = 1 << 18

// record is an entry's place in the file.
type record struct{ offset, size int64 }

// archive is a checked zip file: entry names are relative to the archive's one folder ("data.pkl", "data/0").
type archive struct {
	reader  io.ReaderAt
	records map[string]record
}

func openArchive(r io.ReaderAt, size int64) (*archive, error) {
	if err := checkMagic(r, size); err != nil {
		return nil, err
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("not a readable zip archive: %w", err)
	}
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("%d entries, at most %d are read", len(z.File), maxEntries)
	}
	a := &archive{reader: r, records: map[string]record{}}
	folder := ""
	for i, f := range z.File {
		top, rest, ok := strings.Cut(f.Name, "/")
		if !ok || !cleanName(f.Name) || i > 0 && top != folder {
			return nil, fmt.Errorf("zip entry %q: expected clean names under one folder, as torch.save writes them", f.Name)
		}
		folder = top
		rec, err := locate(f, size)
		if err != nil {
			return nil, fmt.Errorf("zip entry %q: %w", f.Name, err)
		}
		if _, twice := a.records[rest]; twice {
			return nil, fmt.Errorf("zip entry %q appears twice", f.Name)
		}
		a.records[rest] = rec
	}
	return a, a.checkOverlaps()
}

// checkMagic tells the other things that are called .bin and .pt apart, before the zip reader's less telling errors.
func checkMagic(r io.ReaderAt, size int64) error {
	head := make([]byte, min(size, 16))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return nil
	case len(head) > 1 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5:
		return errors.New("a pickle without the zip container of torch 1.6 and later: load it with a trusted torch and save it again, " +
			"best as safetensors")
	case bytes.HasPrefix(head, []byte("version https://g")):
		return errors.New("a Git LFS pointer, not the file itself: run `git lfs pull` where it came from")
	default:
		return fmt.Errorf("not a zip archive (it begins with %q)", head)
	}
}

func cleanName(name string) bool {
	return path.Clean(name) == name && !path.IsAbs(name) && !strings.HasPrefix(name, "..") && !strings.ContainsAny(name, "\\\x00")
}

func locate(f *zip.File, fileSize int64) (record, error) {
	switch {
	case f.Flags&1 != 0:
		return record{}, errors.New("is encrypted")
	case f.Method != zip.Store:
		return record{}, fmt.Errorf("is compressed (method %d); torch.save stores tensors as they are", f.Method)
	case !f.Mode().IsRegular():
		return record{}, fmt.Errorf("is not a regular file (%v)", f.Mode())
	case f.CompressedSize64 != f.UncompressedSize64:
		return record{}, fmt.Errorf("claims %d bytes stored as %d", f.UncompressedSize64, f.CompressedSize64)
	case f.UncompressedSize64 > uint64(fileSize):
		return record{}, fmt.Errorf("claims %d bytes in a file of %d", f.UncompressedSize64, fileSize)
	}
	offset, err := f.DataOffset()
	if err != nil {
		return record{}, err
	}
	size := int64(f.UncompressedSize64)
	if offset < 0 || offset > fileSize-size {
		return record{}, fmt.Errorf("its %d bytes at %d reach beyond the file of %d bytes", size, offset, fileSize)
	}
	return record{offset, size}, nil
}

func (a *archive) checkOverlaps() error {
	names := make([]string, 0, len(a.records))
	for name, r := range a.records {
		if r.size > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Compare(a.records[x].offset, a.records[y].offset) })
	for i := 1; i < len(names); i++ {
		before, r := a.records[names[i-1]], a.records[names[i]]
		if r.offset < before.offset+before.size {
			return fmt.Errorf("zip entries %q and %q overlap", names[i-1], names[i])
		}
	}
	return nil
}

// read loads a small entry.
func (a *archive) read(name string) ([]byte, error) {
	r, ok := a.records[name]
	if !ok {
		return nil, fmt.Errorf("no entry %q: not an archive that torch.save made", name)
	}
	if r.size > pickle.MaxSize {
		return nil, fmt.Errorf("entry %q has %d bytes, at most %d are read", name, r.size, pickle.MaxSize)
	}
	data := make([]byte, r.size)
	if _, err := a.reader.ReadAt(data, r.offset); err != nil && r.size > 0 {
		return nil, fmt.Errorf("entry %q: %w", name, err)
	}
	return data, nil
}
