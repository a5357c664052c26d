package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"gyre/internal/regular"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ManifestName is the file that makes a directory a checkpoint. It is written last.
const ManifestName = "manifest.json"

// manifestVersion counts changes of the format. A newer one is refused rather than misread; the first had no digest of
// its own.
const manifestVersion = 2

// ErrCorrupt is what a checkpoint fails with when it is not what was saved.
var ErrCorrupt = errors.New("corrupt checkpoint")

// manifest lists a checkpoint's files by slash-separated path. SHA256 is that of its own text with zeros in this place,
// so that a change of the state or of a digest is found as well.
type manifest struct {
	Format int                   `json:"format"`
	SHA256 string                `json:"sha256"`
	Files  map[string]fileRecord `json:"files"`
	State  json.RawMessage       `json:"state"`
}

// blank stands for the manifest's own digest while it is computed.
var blank = strings.Repeat("0", 2*sha256.Size)

type fileRecord struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// writeManifest records every file below dir, and state.
func writeManifest(dir string, state any) error {
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("checkpoint state: %w", err)
	}
	m := manifest{Format: manifestVersion, SHA256: blank, Files: map[string]fileRecord{}, State: text}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		m.Files[filepath.ToSlash(name)], err = digest(path)
		return err
	})
	if err != nil {
		return err
	}
	text, _ = json.MarshalIndent(m, "", "  ") // texts, numbers and what is encoded already
	text = append(text, '\n')
	text = bytes.Replace(text, []byte(blank), []byte(sum(text)), 1)
	return os.WriteFile(filepath.Join(dir, ManifestName), text, 0o644)
}

func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

func digest(path string) (fileRecord, error) {
	f, err := os.Open(path)
	if err != nil {
		return fileRecord{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return fileRecord{Size: n, SHA256: fmt.Sprintf("%x", h.Sum(nil))}, err
}

func readManifest(dir string) (manifest, error) {
	var m manifest
	path := filepath.Join(dir, ManifestName)
	text, err := regular.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%w: %s has no %s", ErrCorrupt, dir, ManifestName)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if m.Format < 1 || m.Format > manifestVersion {
		return m, fmt.Errorf("%w: %s has format %d, this program reads 1 to %d", ErrCorrupt, path, m.Format,
			manifestVersion)
	}
	got := sum(bytes.Replace(text, []byte(m.SHA256), []byte(blank), 1))
	if got != m.SHA256 && (m.Format > 1 || m.SHA256 != "") {
		return m, fmt.Errorf("%w: %s has SHA-256 %s, expected %q", ErrCorrupt, path, got, m.SHA256)
	}
	return m, nil
}

// check looks at every file: that it is as long as it should be, and where digested says so, byte for byte.
func (m manifest) check(dir string, digested func(name string) bool) error {
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		path, want := filepath.Join(dir, filepath.FromSlash(name)), m.Files[name]
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s is missing", ErrCorrupt, path)
		case err != nil:
			return err
		case !info.Mode().IsRegular() || info.Size() != want.Size:
			return fmt.Errorf("%w: %s has %d bytes, expected %d", ErrCorrupt, path, info.Size(), want.Size)
		case !digested(name):
			continue
		}
		if got, err := digest(path); err != nil {
			return err
		} else if got != want {
			return fmt.Errorf("%w: %s has SHA-256 %s, expected %s", ErrCorrupt, path, got.SHA256, want.SHA256)
		}
	}
	return nil
}

// Verify checks that a checkpoint holds, byte for byte, what was saved. Failures match ErrCorrupt and name the file
// and its expected and actual digest.
func Verify(dir string) error { return verifyBelow(dir, "", true) }

// verifyBelow is Verify for the files whose name begins with prefix. Without weights, only the sizes of files of
// tensors are compared, which would take seconds per billion parameters to read.
func verifyBelow(dir, prefix string, weights bool) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	maps.DeleteFunc(m.Files, func(name string, _ fileRecord) bool { return !strings.HasPrefix(name, prefix) })
	return m.check(dir, func(name string) bool { return weights || !strings.HasSuffix(name, ".safetensors") })
}

// ReadState decodes the state saved with a checkpoint. It does not verify the files.
func ReadState(dir string, state any) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(m.State, state); err != nil {
		return fmt.Errorf("%w: %s: state: %w", ErrCorrupt, filepath.Join(dir, ManifestName), err)
	}
	return nil
}
