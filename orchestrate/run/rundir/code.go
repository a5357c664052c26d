package rundir

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
)

// CodeFolder holds copies of the small files that a run's configuration names. Where a resumption found another
// content, until_step_N in it holds what the steps up to N ran with.
const CodeFolder = "code"

// smallFile is how many bytes a file has at most of which a run keeps a copy.
const smallFile = 256 << 10

// CopyFiles copies the small ones of files into the run's folder.
func (d *Dir) CopyFiles(files map[string]string) error {
	for name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() > smallFile {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			continue // as one that was not there when files were listed
		}
		target := d.File(CodeFolder, copyName(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := writeFile(target, content); err != nil {
			return err
		}
	}
	return nil
}

// copyName is where a file's copy lies in the folder: a path outside of the working directory without its beginning.
func copyName(name string) string {
	if filepath.IsLocal(name) {
		return name
	}
	if absolute, err := filepath.Abs(name); err == nil {
		name = absolute
	}
	return strings.TrimPrefix(name, string(filepath.Separator))
}

// FileChanges says which files a run that goes on after a step finds other than they were. A run that named no files
// before has no changes; neither has nil.
func (i *Info) FileChanges(files map[string]string, step int) (list []config.Change) {
	if i == nil || i.Files == nil {
		return nil
	}
	both := maps.Clone(files)
	maps.Copy(both, i.Files)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if before, now := i.Files[name], files[name]; before != now {
			list = append(list, config.Change{Step: step, Key: FileKey + name, From: short(before), To: short(now)})
		}
	}
	return list
}

// KeepCopies moves the copies of files that have changed to where those of earlier steps lie.
func (d *Dir) KeepCopies(changes []config.Change) error {
	for _, c := range changes {
		name := strings.TrimPrefix(c.Key, FileKey)
		old := d.File(CodeFolder, copyName(name))
		if !atomicfile.Exists(old) {
			continue
		}
		kept := d.File(CodeFolder, fmt.Sprintf("until_step_%d", c.Step), copyName(name))
		if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
			return err
		}
		if err := os.Rename(old, kept); err != nil {
			return err
		}
	}
	return nil
}

// FileKey begins the keys of changes that are of a file and not of the configuration.
const FileKey = "file "

func short(digest string) string { return digest[:min(12, len(digest))] }

// Copy is a run's copy of a file that its configuration names; "" without one, and where it is no text.
func Copy(dir, name string) string {
	file, err := os.Open(filepath.Join(dir, CodeFolder, copyName(name)))
	if err != nil {
		return ""
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, smallFile))
	if err != nil || strings.ContainsRune(string(content), 0) {
		return ""
	}
	return string(content)
}
