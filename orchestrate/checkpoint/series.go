package checkpoint

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
)

// Found is a checkpoint of a series: parent/PREFIX<step>.
type Found struct {
	Dir  string
	Step int
}

// list finds the directories of a series, newest first.
func list(parent, prefix string) ([]Found, error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		step, err := strconv.Atoi(digits)
		if ok && err == nil && step >= 0 && strconv.Itoa(step) == digits && e.IsDir() {
			found = append(found, Found{filepath.Join(parent, e.Name()), step})
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return cmp.Compare(b.Step, a.Step) })
	return found, nil
}

// Latest finds the newest checkpoint of a series that is intact; ok is false when there is none. Newer ones that are
// not are reported in skipped.
func Latest(parent, prefix string) (newest Found, ok bool, skipped []error, err error) {
	all, err := list(parent, prefix)
	if err != nil {
		return Found{}, false, nil, err
	}
	for _, f := range all {
		err := Verify(f.Dir)
		if err == nil {
			return f, true, skipped, nil
		}
		skipped = append(skipped, err)
	}
	return Found{}, false, skipped, nil
}

// Prune removes the older checkpoints of a series beyond the newest keep complete ones; keep <= 0 keeps all.
// Directories that are not complete checkpoints are neither counted nor removed.
func Prune(parent, prefix string, keep int) error {
	all, err := list(parent, prefix)
	if err != nil || keep <= 0 {
		return err
	}
	complete := 0
	for _, f := range all {
		m, err := readManifest(f.Dir)
		if err != nil || m.checkSizes(f.Dir) != nil {
			continue
		}
		if complete++; complete > keep {
			if err := atomicfile.RemoveDir(f.Dir); err != nil {
				return err
			}
		}
	}
	return nil
}
