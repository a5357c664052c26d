package evaluation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
)

// validated leaves a run whose last validation solved the first so many of ten tasks.
func validated(t *testing.T, name string, solved int, temperature string) *rundir.Run {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	var list []*episode.Episode
	for seed := range 10 {
		list = append(list, &episode.Episode{Tag: "x", Seed: int64(seed), IDs: []int32{1, 2}, Mask: []bool{false, true},
			Logprob: []float32{0, -1}, Success: seed < solved, Stop: "terminated"})
	}
	for file, episodes := range map[string][]*episode.Episode{"validation_1.jsonl": list[:1], "validation_5.jsonl": list} {
		if err := episode.WriteFile(filepath.Join(dir, "rollouts", file), episodes); err != nil {
			t.Fatal(err)
		}
	}
	text := "[model]\npath = 'm'\n[[envs]]\ntag = 'x'\n[validation]\ntemperature = " + temperature + "\n"
	c, err := config.Parse("x.toml", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string]string{"config.toml": text, "run.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &rundir.Run{Name: name, Dir: dir, Config: c}
}

// Runs are compared by their last validations, and what they sampled or judged otherwise is said; so it is of an evaluation.
func TestOfRuns(t *testing.T) {
	a, b := validated(t, "a", 8, "1.0"), validated(t, "b", 5, "0.5")
	found, note, err := OfRuns([]*rundir.Run{a, b})
	if err != nil || found.Rows[0][0] != "x/success" || found.Rows[0][4] != 10 {
		t.Fatalf("%v, %v", found, err)
	}
	if cell := found.Rows[0][3].(table.Cell); cell.Value != -0.3 {
		t.Errorf("difference %v, want -0.3", cell)
	}
	for _, want := range []string{"a at step 5, b at step 5", "b sampled or judged otherwise: " +
		"validation.temperature = 0.5 was 1."} {
		if !strings.Contains(note, want) {
			t.Errorf("no %q in %q", want, note)
		}
	}
	if said := SampledOtherwise(a.Config, b.Dir+"/global_step_5/actor"); !strings.Contains(said,
		"validation.temperature = 1 was 0.5") || SampledOtherwise(a.Config, a.Dir) != "" {
		t.Errorf("of an evaluation: %q", said)
	}
	judged := *b.Config
	judged.Rewards = []config.Reward{{Name: "judge", Weight: 1, Placement: "last"}}
	judged.Validation.SuccessAt = 0.5
	for want, text := range map[string]string{
		`rewards.0.name = "judge" is new; validation.success_at = 0.5 was 0`: SampledOtherwise(&judged, b.Dir),
		`rewards.0.weight = 2 was 1`: sampling(&judged, func() *config.Config {
			other := judged
			other.Rewards = []config.Reward{{Name: "judge", Weight: 2, Placement: "last"}}
			return &other
		}()),
	} {
		if !strings.HasSuffix(text, want) || strings.Contains(text, "placement") {
			t.Errorf("no %q in %q", want, text)
		}
	}
	c := validated(t, "a", 5, "1.0")
	folders := []string{filepath.Base(filepath.Dir(a.Dir)) + "/a", filepath.Base(filepath.Dir(c.Dir)) + "/a"}
	if found, note, err := OfRuns([]*rundir.Run{a, c}); err != nil || found.Rows[0][2] != folders[1] ||
		!strings.Contains(note, folders[0]+" at step 5, "+folders[1]+" at step 5") {
		t.Errorf("runs of one name: %v, %q, %v", found, note, err)
	}
	if err := os.RemoveAll(filepath.Join(b.Dir, "rollouts")); err != nil {
		t.Fatal(err)
	}
	if found, note, err := OfRuns([]*rundir.Run{a, b}); found != nil || err != nil ||
		!strings.Contains(note, "b has no episodes of a validation") {
		t.Errorf("without episodes: %v, %q, %v", found, note, err)
	}
}

// Rows of a data set that has another content in another run are other tasks, whatever they are called; files that only
// judge are said, and tasks stay paired.
func TestTasksOfOtherFilesAreNotPaired(t *testing.T) {
	a, b := validated(t, "a", 8, "1.0"), validated(t, "b", 5, "1.0")
	for _, r := range []*rundir.Run{a, b} {
		r.Config.Validation.Envs = []config.Env{{Tag: "x", Options: map[string]any{"path": "./held.jsonl"}}}
	}
	for _, c := range []struct {
		a, b      map[string]string
		pairs     int
		said, not string
	}{
		{map[string]string{"held.jsonl": "1", "judge.py": "1"}, map[string]string{"held.jsonl": "1", "judge.py": "2"}, 10,
			"b ran with another content of judge.py (gyre runs diff).", "not paired"},
		{map[string]string{"held.jsonl": "1"}, map[string]string{"held.jsonl": "2"}, 0,
			"another content of held.jsonl (gyre runs diff). b has tasks of x from other files, which are not paired: gyre " +
				"eval plays both on one set.", "judge"},
		{map[string]string{"held.jsonl": "1"}, nil, 10, "b at step 5.", "content"},
	} {
		a.Info, b.Info = &rundir.Info{Files: c.a}, &rundir.Info{Files: c.b}
		found, note, err := OfRuns([]*rundir.Run{a, b})
		if err != nil || found.Rows[0][4] != c.pairs || !strings.Contains(note, c.said) || strings.Contains(note, c.not) {
			t.Errorf("%v and %v: %v, %q, %v", c.a, c.b, found.Rows, note, err)
		}
	}
}

// An evaluation says that a file of its tasks is no longer what the run had.
func TestAnEvaluationSaysWhichFilesChanged(t *testing.T) {
	run := validated(t, "a", 8, "1.0")
	held := filepath.Join(t.TempDir(), "held.jsonl")
	for file, text := range map[string]string{held: "new", filepath.Join(run.Dir, "run.json"): `{"files_sha256": {"` +
		held + `": "old", "train.jsonl": "old"}}`} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := *run.Config
	c.Validation.Envs = slices.Clone(c.Validation.Envs)
	c.Validation.Envs[0].Options = map[string]any{"path": held}
	if said := SampledOtherwise(&c, run.Dir); !strings.Contains(said, "the content of "+held) ||
		strings.Contains(said, "train.jsonl") {
		t.Errorf("said %q", said)
	}
}
