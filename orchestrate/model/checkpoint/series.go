package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/atomicfile"
)

// member is a checkpoint of a series: parent/PREFIX<step>.
type member struct {
	dir  string
	step int
}

// list finds the directories of a series, newest first.
func list(parent, prefix string) ([]member, error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []member
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), prefix)
		step, err := strconv.Atoi(digits)
		if ok && err == nil && step >= 0 && strconv.Itoa(step) == digits && e.IsDir() {
			found = append(found, member{filepath.Join(parent, e.Name()), step})
		}
	}
	slices.SortFunc(found, func(a, b member) int { return cmp.Compare(b.step, a.step) })
	return found, nil
}

// Latest finds the newest checkpoint of a series that is intact; "" when there is none. Newer ones that are not are
// reported in skipped.
func Latest(parent, prefix string) (newest string, skipped []error, err error) {
	all, err := list(parent, prefix)
	for _, f := range all {
		problem := Verify(f.dir)
		if problem == nil {
			return f.dir, skipped, nil
		}
		skipped = append(skipped, problem)
	}
	return "", skipped, err
}

// Prune removes the older checkpoints of a series beyond the newest keep complete ones; keep <= 0 keeps all.
// Directories that are not complete checkpoints, and steps that spare (which may be nil) holds on to, are neither
// counted nor removed.
func Prune(parent, prefix string, keep int, spare func(step int) bool) error {
	all, err := list(parent, prefix)
	if err != nil || keep <= 0 {
		return err
	}
	complete := 0
	for _, f := range all {
		if spare != nil && spare(f.step) {
			continue
		}
		m, err := readManifest(f.dir)
		if err != nil || m.check(f.dir, func(string) bool { return false }) != nil {
			continue
		}
		if complete++; complete > keep {
			if err := atomicfile.RemoveDir(f.dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// ErrNone means that a path given as a checkpoint is none.
var ErrNone = errors.New("not a checkpoint")

// Models says where the models of a checkpoint lie.
type Models struct {
	Actor  string // Hugging Face directories
	Critic string // "" when there is none
	Root   string // the folder with the manifest, where optimizer and state are; "" for a plain directory
}

// Find takes whatever may be called a checkpoint: a run directory (its newest intact one), a step's folder of a run, or
// a Hugging Face directory. What a manifest covers is verified, also when only the actor of a step's folder is asked
// for, and ErrCorrupt names the file that changed. Newer checkpoints of a run that were passed over are in skipped.
func Find(path, prefix string) (found Models, skipped []error, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return found, nil, fmt.Errorf("%w: %w: `gyre train` or `gyre sft` makes a run's directory, and saves %sN folders "+
			"there; `gyre model init` and `gyre model pull` make a model's", ErrNone, err, prefix)
	case !info.IsDir():
		return found, nil, fmt.Errorf("%w: %s is a file, expected a run directory, a %sN folder or a Hugging Face "+
			"directory", ErrNone, path, prefix)
	}
	root := path
	switch {
	case atomicfile.Exists(path, "config.json"):
		found.Actor = path
		return found, nil, VerifyModel(path)
	case atomicfile.Exists(path, ManifestName):
		err, found.Root = Verify(path), path
	case atomicfile.Exists(path, "actor", "config.json"): // the models of a checkpoint, copied
	default:
		root, skipped, err = Latest(path, prefix)
		found.Root = root
		switch {
		case err != nil || root != "":
		case len(skipped) > 0:
			err = fmt.Errorf("no intact checkpoint is left in %s: %w", path, errors.Join(skipped...))
		default:
			err = fmt.Errorf("%w: %s has no %sN folder (a run), no actor/config.json (a %sN folder) and no "+
				"config.json (a Hugging Face directory)", ErrNone, path, prefix, prefix)
		}
	}
	if err != nil {
		return Models{}, nil, err
	}
	found.Actor = filepath.Join(root, "actor")
	if atomicfile.Exists(root, "critic", "config.json") {
		found.Critic = filepath.Join(root, "critic")
	}
	return found, skipped, nil
}

// VerifyModel verifies the actor or critic of a checkpoint alone, whatever links lead to it: what lies beside it may
// have been removed to save space. Of a file the folder is looked at. Other directories and files are taken as they
// are.
func VerifyModel(path string) error { return verifyModel(path, true) }

// VerifySettings is VerifyModel without the bytes of the weights, for those who read the files beside them.
func VerifySettings(path string) error { return verifyModel(path, false) }

func verifyModel(path string, weights bool) error {
	full, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if resolved, err := filepath.EvalSymlinks(full); err == nil && !inCheckpoint(full) {
		full = resolved
	}
	if info, err := os.Stat(full); err == nil && !info.IsDir() {
		full = filepath.Dir(full)
	}
	if inCheckpoint(full) {
		return verifyBelow(filepath.Dir(full), filepath.Base(full)+"/", weights)
	}
	return nil
}

// inCheckpoint reports whether a directory is a model beside a manifest.
func inCheckpoint(dir string) bool {
	root, part := filepath.Split(dir)
	return (part == "actor" || part == "critic") && atomicfile.Exists(root, ManifestName)
}

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

// Discard removes what was written. After Commit, and of nil, it does nothing.
func (p *Pending) Discard() error {
	if p == nil {
		return nil
	}
	return p.dir.Discard()
}

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
	for i := 2; atomicfile.Exists(aside); i++ {
		aside = fmt.Sprintf("%s.corrupt%d", dir, i)
	}
	if err := os.Rename(dir, aside); err != nil {
		return err
	}
	return atomicfile.Sync(filepath.Dir(dir))
}
