package tasks

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gyre/envs"
	"gyre/envs/sandbox"
)

// Task is what a folder says. Nobody may change it.
type Task struct {
	Name        string
	Instruction string
	Folder      string // where the agent starts
	Files       []sandbox.File
	Env         map[string]string
	Agent       time.Duration // for all that the agent's tools do
	MemoryMiB   int           // 0: as the environment's options say
	DiskMiB     int
	Offline     bool          // even if the environment gives its episodes the network
	Trial       sandbox.Trial // without the names of files of rewards
	Solution    string        // of the expert; "": there is none
	judge       func(sandbox.Said) (outcome, error)
}

// The layouts by the file that tells them.
var layouts = []struct {
	file string
	read func(fs.FS, *Task) error
}{{"task.toml", readHarbor}, {"task.yaml", readTerminalBench}}

// Read reads a task from its folder.
func Read(folder fs.FS, name string) (*Task, error) {
	for _, layout := range layouts {
		if _, err := fs.Stat(folder, layout.file); err != nil {
			continue
		}
		t := &Task{Name: name, Folder: "/app", Env: map[string]string{}}
		if err := layout.read(folder, t); err != nil {
			return nil, fmt.Errorf("task %s: %w", name, err)
		}
		if strings.TrimSpace(t.Instruction) == "" {
			return nil, fmt.Errorf("task %s: the instruction is empty", name)
		}
		return t, nil
	}
	return nil, fmt.Errorf("task %s: no task.toml (Harbor) and no task.yaml (Terminal-Bench)", name)
}

// readAll reads a folder that is a task, or whose folders are, in the order of their names.
func readAll(dir string) ([]*Task, error) {
	for _, layout := range layouts {
		if _, err := os.Stat(filepath.Join(dir, layout.file)); err == nil {
			task, err := readFolder(dir)
			return []*Task{task}, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []*Task
	var problems []error
	for _, entry := range entries {
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		task, err := readFolder(filepath.Join(dir, entry.Name()))
		all, problems = append(all, task), append(problems, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: neither a task nor a folder of tasks", dir)
	}
	return all, errors.Join(problems...)
}

// readFolder reads the task of a folder of this machine.
func readFolder(dir string) (*Task, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return Read(contained{root}, filepath.Base(dir))
}

// contained has the plain files of a folder and nothing else: a task comes from others, and what it links to outside
// would get into the session.
type contained struct{ root *os.Root }

// largest is the size of a file, which is kept in memory.
const largest = 256 << 20

// Open refuses what is no plain file before it is opened, since a FIFO would wait for who writes into it.
func (c contained) Open(name string) (fs.File, error) {
	info, err := c.root.Stat(name)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("expected a plain file")}
	}
	if err == nil && info.Mode().IsRegular() && info.Size() > largest {
		err = &fs.PathError{Op: "open", Path: name,
			Err: fmt.Errorf("%d MiB, expected at most %d", info.Size()>>20, largest>>20)}
	}
	if err != nil {
		return nil, err
	}
	return c.root.FS().Open(name)
}

// filesIn are the files of a folder, for a place in the session.
func filesIn(folder fs.FS, dir, place string) (files []sandbox.File, err error) {
	err = fs.WalkDir(folder, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		within := name
		if dir != "." {
			within = strings.TrimPrefix(name, dir)
		}
		file, err := fileOf(folder, name, path.Join(place, within))
		files = append(files, file)
		return err
	})
	return files, err
}

func fileOf(folder fs.FS, name, place string) (sandbox.File, error) {
	info, err := fs.Stat(folder, name)
	if err != nil {
		return sandbox.File{}, err
	}
	if info.IsDir() {
		return sandbox.File{}, fmt.Errorf("%s links to a folder: expected the folder itself", name)
	}
	content, err := fs.ReadFile(folder, name)
	return sandbox.File{Path: place, Mode: info.Mode().Perm(), Content: content}, err
}

// unixLines refuses a script that bash would misread: it takes the carriage return for a part of each line's last word.
func unixLines(name string, script sandbox.File) error {
	if bytes.Contains(script.Content, []byte("\r\n")) {
		return fmt.Errorf("%s: Windows line ends, which bash misreads: expected Unix ones (sed -i 's/\\r$//' %[1]s)", name)
	}
	return nil
}

// text reads a file that may be missing.
func text(folder fs.FS, name string) (string, error) {
	content, err := fs.ReadFile(folder, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(content), err
}

// seconds are a limit of a task's file.
func seconds(what string, given, otherwise float64) (time.Duration, error) {
	given = cmp.Or(given, otherwise)
	if !(given > 0 && given <= 1e6) {
		return 0, fmt.Errorf("%s is %g, expected seconds up to 1000000", what, given)
	}
	return time.Duration(given * float64(time.Second)), nil
}

// source gives the task of a seed: of a list, or made by a family.
type source func(seed int64) (*Task, error)

func newSource(o *options) (source, error) {
	if o.Path == "" {
		return generated(o.Families)
	}
	all, err := envs.Shared(folderKey(envs.FileKey(o.Path)), func() ([]*Task, error) { return readAll(o.Path) })
	if err != nil {
		return nil, fmt.Errorf("option path: %w", err)
	}
	if len(o.Tasks) > 0 {
		named := func(t *Task) bool { return !slices.Contains(o.Tasks, t.Name) }
		for _, name := range o.Tasks {
			if !slices.ContainsFunc(all, func(t *Task) bool { return t.Name == name }) {
				return nil, fmt.Errorf("option tasks: %s has no task %q", o.Path, name)
			}
		}
		all = slices.DeleteFunc(slices.Clone(all), named)
	}
	return func(seed int64) (*Task, error) { return envs.At(all, seed), nil }, nil
}

type folderKey string
