package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
)

// Pending is a checkpoint being written into Dir. It ends with Commit or Discard.
type Pending struct {
	Dir string
	dir *atomicfile.Dir
}

// Begin starts the checkpoint parent/name. What killed saves left in parent is removed.
func Begin(parent, name string) (*Pending, error) {
	dir, err := atomicfile.BeginDir(parent, name)
	if err != nil {
		return nil, fmt.Errorf("starting a checkpoint: %w", err)
	}
	return &Pending{Dir: dir.Path, dir: dir}, nil
}

// Commit records every file and state in the manifest, puts all on disk and gives the checkpoint its name. On any
// error (a full disk, say) nothing is left of it and earlier checkpoints are untouched. An intact checkpoint of the
// same name is never replaced; a corrupt one is moved aside, to NAME.corrupt.
func (p *Pending) Commit(state any) error {
	if err := p.commit(state); err != nil {
		return errors.Join(fmt.Errorf("checkpoint %s was not saved: %w", p.dir.Target, err), p.Discard())
	}
	return nil
}

func (p *Pending) commit(state any) error {
	if err := writeManifest(p.Dir, state); err != nil {
		return err
	}
	if err := quarantine(p.dir.Target); err != nil {
		return err
	}
	return p.dir.Publish()
}

// Discard removes what was written. After Commit it does nothing.
func (p *Pending) Discard() error { return p.dir.Discard() }

// quarantine moves a corrupt checkpoint out of the way; an intact one is an error.
func quarantine(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := Verify(dir); err == nil {
		return fmt.Errorf("%s: %w", dir, fs.ErrExist)
	} else if !errors.Is(err, ErrCorrupt) {
		return err
	}
	aside := dir + ".corrupt"
	for i := 2; ; i++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s.corrupt%d", dir, i)
	}
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	return atomicfile.Sync(filepath.Dir(dir))
}
