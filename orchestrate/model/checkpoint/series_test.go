package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gyre/internal/child/childtest"
)

const prefix = "global_step_"

type state struct{ Step int }

// save makes the checkpoint of a step, with some files.
func save(parent string, step int) error {
	p, err := Begin(parent, prefix+strconv.Itoa(step))
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(p.Dir, "actor"), 0o755); err != nil {
		return errors.Join(err, p.Discard())
	}
	for i := range 3 {
		data := strings.Repeat(fmt.Sprint(step, i), 100_000)
		if err := os.WriteFile(filepath.Join(p.Dir, "actor", fmt.Sprint("file", i)), []byte(data), 0o644); err != nil {
			return errors.Join(err, p.Discard())
		}
	}
	return p.Commit(state{step})
}

func mustSave(t *testing.T, parent string, steps ...int) {
	t.Helper()
	for _, step := range steps {
		if err := save(parent, step); err != nil {
			t.Fatal(err)
		}
	}
}

func latest(t *testing.T, parent string) (step int, skipped []error) {
	t.Helper()
	dir, skipped, err := Latest(parent, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if dir == "" {
		return -1, skipped
	}
	var s state
	if err := ReadState(dir, &s); err != nil || dir != filepath.Join(parent, fmt.Sprint(prefix, s.Step)) {
		t.Errorf("%s: state %+v, %v", dir, s, err)
	}
	return s.Step, skipped
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func TestSeries(t *testing.T) {
	parent := t.TempDir()
	if step, _ := latest(t, filepath.Join(parent, "absent")); step != -1 {
		t.Errorf("a run that never saved has step %d", step)
	}
	mustSave(t, parent, 1, 9, 10, 2)
	if step, skipped := latest(t, parent); step != 10 || len(skipped) != 0 {
		t.Errorf("latest %d, skipped %v", step, skipped)
	}
	if err := save(parent, 10); !errors.Is(err, fs.ErrExist) {
		t.Errorf("saving an intact step again: %v", err)
	}
	for _, dir := range []string{prefix + "11", prefix + "x", prefix + "07"} { // not ours, or not complete
		if err := os.Mkdir(filepath.Join(parent, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if step, skipped := latest(t, parent); step != 10 || len(skipped) != 1 || !errors.Is(skipped[0], ErrCorrupt) {
		t.Errorf("latest %d, skipped %v", step, skipped)
	}
	if err := Prune(parent, prefix, 2, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, parent),
		"global_step_07 global_step_10 global_step_11 global_step_9 global_step_x"; got != want {
		t.Errorf("after pruning: %s, want %s", got, want)
	}
	if err := Prune(parent, prefix, 0, nil); err != nil || !strings.Contains(names(t, parent), "global_step_9") {
		t.Errorf("keeping all: %v, %s", err, names(t, parent))
	}
}

func TestDamageIsFoundAndNamed(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for name, damage := range map[string]func(dir, file string) error{
		"flipped bit": func(_, file string) error {
			data, err := os.ReadFile(file)
			data[random.IntN(len(data))] ^= 1 << random.IntN(8)
			return errors.Join(err, os.WriteFile(file, data, 0o644))
		},
		"truncated": func(_, file string) error { return os.Truncate(file, 4096) },
		"emptied":   func(_, file string) error { return os.Truncate(file, 0) },
		"removed":   func(_, file string) error { return os.Remove(file) },
		"swapped": func(dir, file string) error {
			other := filepath.Join(dir, "actor", "file2")
			return errors.Join(os.Rename(file, file+"x"), os.Rename(other, file), os.Rename(file+"x", other))
		},
		"symlink": func(_, file string) error {
			return errors.Join(os.Remove(file), os.Symlink("/etc/passwd",
				file))
		},
		"no manifest":  func(dir, _ string) error { return os.Remove(filepath.Join(dir, ManifestName)) },
		"cut manifest": func(dir, _ string) error { return os.Truncate(filepath.Join(dir, ManifestName), 50) },
		"newer format": func(dir, _ string) error {
			return os.WriteFile(filepath.Join(dir, ManifestName), []byte(`{"format":3}`), 0o644)
		},
	} {
		parent := t.TempDir()
		mustSave(t, parent, 1, 2)
		dir := filepath.Join(parent, prefix+"2")
		if err := damage(dir, filepath.Join(dir, "actor", "file1")); err != nil {
			t.Fatal(err)
		}
		err := Verify(dir)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "file1") && !strings.Contains(err.Error(),
			ManifestName) {
			t.Errorf("%s: %v", name, err)
		}
		if step, skipped := latest(t, parent); step != 1 || len(skipped) != 1 {
			t.Errorf("%s: latest %d, skipped %v", name, step, skipped)
		}
		// The step is saved again over the damage, which is kept aside.
		mustSave(t, parent, 2)
		if step, _ := latest(t, parent); step != 2 || !strings.Contains(names(t, parent), prefix+"2.corrupt") {
			t.Errorf("%s: saved again: latest %d, %s", name, step, names(t, parent))
		}
	}
}

// Whatever byte of whatever file changes, the checkpoint, its run and (for a file of its own) the model in it are
// refused with the file's name.
func TestAnyFlippedByteIsFound(t *testing.T) {
	run := t.TempDir()
	p, err := Begin(run, prefix+"7")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"actor/config.json": `{"a": 1}`, "actor/model.safetensors": "weights",
		"critic/config.json":          "{}",
		"optimizer/actor.safetensors": "moments"} {
		file := filepath.Join(p.Dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Commit(map[string]any{"step": 7, "kl": 0.25}); err != nil {
		t.Fatal(err)
	}
	step := filepath.Join(run, prefix+"7")
	actor, critic := filepath.Join(step, "actor"), filepath.Join(step, "critic")
	for _, path := range []string{run, step} {
		if found, skipped, err := Find(path, prefix); err != nil || len(skipped) > 0 ||
			found != (Models{actor, critic, step}) {
			t.Fatalf("%s intact: %+v, %v, %v", path, found, skipped, err)
		}
	}
	if found, _, err := Find(actor, prefix); err != nil || found != (Models{Actor: actor}) {
		t.Fatalf("%+v, %v", found, err)
	}
	// links to a step and to its model, as fine-tuning leaves them
	best, start := filepath.Join(run, "best"), filepath.Join(run, "merged_model")
	if err := errors.Join(os.Symlink(prefix+"7", best), os.Symlink("best/actor", start)); err != nil {
		t.Fatal(err)
	}
	if found, _, err := Find(start, prefix); err != nil || found != (Models{Actor: start}) {
		t.Fatalf("%+v, %v", found, err)
	}
	err = filepath.WalkDir(step, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		whole, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for at := range whole {
			damaged := slices.Clone(whole)
			damaged[at] ^= 1 << (at % 8)
			if err := os.WriteFile(file, damaged, 0o644); err != nil {
				return err
			}
			asked := []string{run, step}
			if strings.HasPrefix(file, actor) || e.Name() == ManifestName {
				asked = append(asked, actor, start, filepath.Join(best, "actor"))
				if err := VerifyModel(filepath.Join(start, "model.safetensors")); !errors.Is(err, ErrCorrupt) {
					t.Errorf("the weights' own path with byte %d of %s flipped: %v", at, file, err)
				}
			}
			for _, path := range append(asked, best) {
				_, _, err := Find(path, prefix)
				named := err != nil && (strings.Contains(err.Error(), file) || strings.Contains(err.Error(),
					strings.Replace(file, step, best, 1)))
				if !errors.Is(err, ErrCorrupt) || !named {
					t.Errorf("%s with byte %d of %s flipped: %v", path, at, file, err)
				}
			}
		}
		return os.WriteFile(file, whole, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	// A model is found in a checkpoint whose other parts were removed, and in directories that no run made.
	if err := os.RemoveAll(filepath.Join(step, "optimizer")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Find(actor, prefix); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(step, ManifestName)); err != nil {
		t.Fatal(err)
	}
	if found, _, err := Find(step, prefix); err != nil || found != (Models{Actor: actor, Critic: critic}) {
		t.Errorf("copied models: %+v, %v", found, err)
	}
	// Other people's manifests are none of ours.
	if err := os.WriteFile(filepath.Join(actor, ManifestName), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if found, _, err := Find(actor, prefix); err != nil || found != (Models{Actor: actor}) {
		t.Errorf("a model with a manifest of its own: %+v, %v", found, err)
	}
	for _, path := range []string{filepath.Join(run, "absent"), filepath.Join(actor, "config.json"), t.TempDir()} {
		if _, _, err := Find(path, prefix); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Whoever reads the settings of a model finds a change of them, and of the size of its weights; a change within the
// weights is found by those who read them.
func TestSettingsAreVerifiedWithoutTheWeights(t *testing.T) {
	actor := filepath.Join(t.TempDir(), prefix+"1", "actor")
	p, err := Begin(filepath.Dir(filepath.Dir(actor)), prefix+"1")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"config.json": "{}", "model.safetensors": "weights"}
	write := func(dir, name, text string) {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range texts {
		write(filepath.Join(p.Dir, "actor"), name, text)
	}
	if err := p.Commit(nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text      string
		settings, model error
	}{{"config.json", "[]", ErrCorrupt, ErrCorrupt}, {"model.safetensors", "weighty", nil, ErrCorrupt},
		{"model.safetensors", "light", ErrCorrupt, ErrCorrupt}} {
		write(actor, c.name, c.text)
		if settings, model := VerifySettings(actor), VerifyModel(actor); !errors.Is(settings, c.settings) ||
			!errors.Is(model, c.model) {
			t.Errorf("%s is %q: settings %v, model %v", c.name, c.text, settings, model)
		}
		write(actor, c.name, texts[c.name])
	}
}

// Manifests of the first format have no digest of their own.
func TestFirstFormatIsRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte(`{"format":1,"files":{},"state":{"Step":3}}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	var s state
	if err := errors.Join(Verify(dir), ReadState(dir, &s)); err != nil || s.Step != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A step that is to be kept (one whose weights were analysed, say) neither goes nor pushes another out.
func TestPruneSpares(t *testing.T) {
	parent := t.TempDir()
	mustSave(t, parent, 1, 2, 3, 4)
	if err := Prune(parent, prefix, 1, func(step int) bool { return step == 2 }); err != nil || names(t,
		parent) != "global_step_2 global_step_4" {
		t.Errorf("%v, %s", err, names(t, parent))
	}
}

// A full disk (here: a limit on file sizes, above that of what go test writes itself) fails the save and nothing else.
func TestFailedWriteLeavesEarlierCheckpoints(t *testing.T) {
	parent := t.TempDir()
	mustSave(t, parent, 1)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 150_000, Max: old.Max}); err != nil {
		t.Skip(err)
	}
	err := save(parent, 2)
	if restore := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); restore != nil {
		t.Fatal(restore)
	}
	if !errors.Is(err, unix.EFBIG) {
		t.Errorf("save: %v", err)
	}
	if got := names(t, parent); got != prefix+"1" {
		t.Errorf("left: %s", got)
	}
	p, err := Begin(parent, prefix+"3")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Commit(func() {}); err == nil { // a state that cannot be encoded
		t.Error("commits")
	}
	if got := names(t, parent); got != prefix+"1" {
		t.Errorf("left: %s", got)
	}
}

// Killed at random moments, the series never shows a damaged checkpoint and never loses an acknowledged one.
func TestKillDuringSave(t *testing.T) {
	if parent := os.Getenv("CHECKPOINT_TEST_PARENT"); parent != "" { // the child: saves until killed
		first, _ := strconv.Atoi(os.Getenv("CHECKPOINT_TEST_FIRST"))
		fmt.Println("begun")
		for step := first; ; step++ {
			if err := save(parent, step); err != nil {
				fmt.Println("error", err)
				return
			}
			fmt.Println("saved", step)
			if err := Prune(parent, prefix, 2, nil); err != nil {
				fmt.Println("error", err)
				return
			}
		}
	}
	parent := t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	step := 0
	for range 12 {
		child := exec.Command(os.Args[0], "-test.run=^TestKillDuringSave$")
		child.Env = append(os.Environ(), "CHECKPOINT_TEST_PARENT="+parent, fmt.Sprint("CHECKPOINT_TEST_FIRST=", step+1))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged, soon := step, time.Duration(random.IntN(120))*time.Millisecond
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "begun" {
				time.AfterFunc(soon, func() { child.Process.Kill() })
			}
			if n, ok := strings.CutPrefix(lines.Text(), "saved "); ok {
				acknowledged, _ = strconv.Atoi(n)
			} else if strings.HasPrefix(lines.Text(), "error") {
				t.Error(lines.Text())
			}
		}
		child.Wait()
		if !childtest.EndedBy(child, syscall.SIGKILL) {
			t.Fatalf("the child was to be killed: %v", child.ProcessState)
		}
		got, skipped := latest(t, parent)
		if got == -1 && acknowledged == 0 { // killed before the first save
			got = 0
		}
		if got < acknowledged || got > acknowledged+1 || len(skipped) != 0 {
			t.Fatalf("acknowledged step %d, found %d, skipped %v", acknowledged, got, skipped)
		}
		step = got
	}
	if step == 0 {
		t.Fatal("nothing was saved between the kills")
	}
	mustSave(t, parent, step+1)
	if left := names(t, parent); strings.Contains(left, ".tmp-") {
		t.Errorf("leftovers: %s", left)
	}
}
