package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gyre/orchestrate/checkpoint"
)

// ErrNotCheckpoint means that a path given as a checkpoint is none.
var ErrNotCheckpoint = errors.New("not a checkpoint")

// place is where a checkpoint's models lie.
type place struct {
	actor  string // Hugging Face directories
	critic string // "" when there is none
	root   string // the global_step_N folder with its manifest, "" for a plain directory
}

// locate finds the models of a run directory (its newest intact checkpoint), a global_step_N folder, or a plain Hugging Face directory.
// Checkpoints with a manifest are verified; notes say what was passed over.
func locate(path string) (p place, notes []error, err error) {
	if info, err := os.Stat(path); err != nil {
		return p, nil, fmt.Errorf("%w: %w", ErrNotCheckpoint, err)
	} else if !info.IsDir() {
		return p, nil, fmt.Errorf("%w: %s is a file, expected a run directory, a global_step_N folder or a Hugging Face directory", ErrNotCheckpoint, path)
	}
	if exists(path, "config.json") {
		return place{actor: path}, nil, nil
	}
	root := path
	if !exists(path, "actor", "config.json") {
		newest, ok, skipped, err := checkpoint.Latest(path, stepPrefix)
		switch {
		case err != nil:
			return p, nil, err
		case !ok && len(skipped) > 0:
			return p, nil, fmt.Errorf("no intact checkpoint is left in %s: %w", path, errors.Join(skipped...))
		case !ok:
			return p, nil, fmt.Errorf("%w: %s has no global_step_N folder (a run), no actor/config.json (a global_step_N folder) and no "+
				"config.json (a Hugging Face directory)", ErrNotCheckpoint, path)
		}
		root, notes = newest.Dir, skipped
	} else if exists(root, checkpoint.ManifestName) {
		if err := checkpoint.Verify(root); err != nil {
			return p, nil, err
		}
	}
	p.actor = filepath.Join(root, "actor")
	if exists(root, "critic", "config.json") {
		p.critic = filepath.Join(root, "critic")
	}
	if exists(root, checkpoint.ManifestName) {
		p.root = root
	}
	return p, notes, nil
}

func exists(elements ...string) bool {
	_, err := os.Stat(filepath.Join(elements...))
	return err == nil
}
