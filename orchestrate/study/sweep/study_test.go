package sweep

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gyre/internal/atomicfile"
	"gyre/internal/exitcode"
	"gyre/internal/settings"
	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/run/metrics"
)

func load(t *testing.T, text string, overrides ...string) (*Study, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "study.toml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return Load(path, overrides...)
}

func plan(t *testing.T, s *Study, stage int, start ...string) (labels []string, overrides []string) {
	t.Helper()
	conditions, err := s.Plan(stage, start)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conditions {
		labels = append(labels, c.Label)
		overrides = append(overrides, strings.Join(c.Overrides, " "))
	}
	return labels, overrides
}

func TestConditionsOfAStudy(t *testing.T) {
	const head = "[study]\nname = \"s\"\nbase = \"b.toml\"\n"
	for name, c := range map[string]struct {
		text              string
		labels, overrides []string
	}{
		"one axis with a name for several overrides": {
			"[[axes]]\nkey = \"filter.value\"\nvalues = [1.0, 0.98, \"nofilter\"]\nnamed = { nofilter = " +
				"[\"filter.value=1\", \"filter.include_zero=true\"] }\n",
			[]string{"1.0", "0.98", "nofilter"}, []string{"filter.value=1.0", "filter.value=0.98",
				"filter.value=1 filter.include_zero=true"}},
		"labels": {
			"[[axes]]\nkey = \"filter.value\"\nvalues = [1.0, \"nofilter\"]\nlabels = [\"10\", \"off\"]\nnamed = { " +
				"nofilter = [\"filter.strategy=none\"] }\n",
			[]string{"10", "off"}, []string{"filter.value=1.0", "filter.strategy=none"}},
		"a grid": {
			"[[axes]]\nkey = \"actor.lr\"\nvalues = [1e-6, 1e-5]\n[[axes]]\nkey = \"algorithm.kl_coef\"\nname = " +
				"\"kl\"\nvalues = [0, 0.1]\n",
			[]string{"lr=1e-06,kl=0", "lr=1e-06,kl=0.1", "lr=1e-05,kl=0", "lr=1e-05,kl=0.1"},
			[]string{"actor.lr=1e-06 algorithm.kl_coef=0", "actor.lr=1e-06 algorithm.kl_coef=0.1",
				"actor.lr=1e-05 algorithm.kl_coef=0", "actor.lr=1e-05 algorithm.kl_coef=0.1"}},
		"axes that change together": {
			"[[axes]]\nkey = \"envs.0.groups\"\nvalues = [4, 8]\nzip = \"a\"\n[[axes]]\nkey = " +
				"\"envs.0.group_size\"\nvalues = [32, 16]\nzip = \"a\"\n",
			[]string{"groups=4,group_size=32", "groups=8,group_size=16"},
			[]string{"envs.0.groups=4 envs.0.group_size=32", "envs.0.groups=8 envs.0.group_size=16"}},
		"written out": {
			"[[conditions]]\nlabel = \"plain\"\nset = []\n[[conditions]]\nlabel = \"with KL / reward\"\nset = " +
				"[\"algorithm.kl_in=reward\"]\n",
			[]string{"plain", "with KL / reward"}, []string{"", "algorithm.kl_in=reward"}},
	} {
		s, err := load(t, head+c.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if labels, overrides := plan(t, s, 1); !reflect.DeepEqual(labels, c.labels) ||
			!reflect.DeepEqual(overrides, c.overrides) {
			t.Errorf("%s: %q: %q, want %q: %q", name, labels, overrides, c.labels, c.overrides)
		}
	}
	if folder := (Condition{Label: "with KL / reward"}).Folder(); folder != "with_KL___reward" {
		t.Errorf("folder %q", folder)
	}
}

func TestStagesStartFromTheBest(t *testing.T) {
	s, err := load(t, "[study]\nname = \"s\"\nbase = \"b.toml\"\n[[axes]]\nkey = \"actor.lr\"\nvalues = "+
		"[1e-6]\n[[axes]]\nkey = \"actor.epochs\"\nvalues = [1, 2]\nstage = 2\n")
	if err != nil {
		t.Fatal(err)
	}
	if s.Stages() != 2 {
		t.Errorf("%d stages", s.Stages())
	}
	labels, overrides := plan(t, s, 2, "actor.lr=1e-06")
	if !reflect.DeepEqual(labels, []string{"stage2,1", "stage2,2"}) || !reflect.DeepEqual(overrides,
		[]string{"actor.lr=1e-06 actor.epochs=1", "actor.lr=1e-06 actor.epochs=2"}) {
		t.Errorf("%q: %q", labels, overrides)
	}
}

// The same seed of two conditions draws the same; no two seeds share an environment.
func TestSeedsArePaired(t *testing.T) {
	s, err := load(t, "[study]\nname = \"s\"\nbase = \"b.toml\"\nseeds = 2\n[[axes]]\nkey = \"actor.lr\"\nvalues = "+
		"[1e-6, 1e-5]\n")
	if err != nil {
		t.Fatal(err)
	}
	conditions, err := s.Plan(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	base := &config.Config{}
	base.Run.Seed, base.Run.EnvSeed = 7, 10000
	drawn := map[int]map[string]bool{1: {}, 2: {}}
	dirs := map[string]bool{}
	for _, r := range s.runs(base, conditions, 1) {
		dirs[r.Dir] = true
		for _, o := range r.Overrides {
			if strings.HasPrefix(o, "run.seed=") || strings.HasPrefix(o, "run.env_seed=") {
				drawn[r.Seed][o] = true
			}
		}
	}
	if len(dirs) != 4 || !dirs["studies/s/runs/1e-05/seed_2"] {
		t.Errorf("directories %v", dirs)
	}
	for seed, want := range map[int][]string{1: {"run.seed=7", "run.env_seed=10000"},
		2: {"run.seed=8", "run.env_seed=10010019"}} {
		if len(drawn[seed]) != 2 || !drawn[seed][want[0]] || !drawn[seed][want[1]] {
			t.Errorf("seed %d draws %v, want %v", seed, drawn[seed], want)
		}
	}
}

func TestBadStudiesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"[study]\nname = \"s\"\nbase = \"b\"\n":   "nothing is varied",
		"[study]\nname = \"a/b\"\nbase = \"b\"\n": `study.name: is "a/b"`,
		"[study]\nname = \"s\"\n":                 "study.base: missing",
		"[study]\nname = \"s\"\nbase = \"b\"\nseed = 3\n": "study.toml:4: study.seed: unknown key (did " +
			"you mean seeds?)",
		"[study]\nname = \"s\"\nbase = \"b\"\nseeds = 0\n":             "study.seeds: expected an integer >= 1, got 0",
		"[study]\nname = \"s\"\nbase = \"b\"\n[[axes]]\nkey = \"k\"\n": "study.toml:4: axes.0: needs key and values",
		"[study]\nname =\n": "study.toml:2:",
		"[[axes]]\nkey = \"a\"\nvalues = [1]\nzip = \"z\"\n[[axes]]\nkey = \"b\"\nvalues = [1, 2]\nzip = \"z\"\n": "change together",
	} {
		if _, err := load(t, text); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	s, err := load(t, "[study]\nname = \"s\"\nbase = \"b.toml\"\n[[axes]]\nkey = \"k\"\nvalues = [\"a b\", \"a/b\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Plan(1, nil); err == nil || !strings.Contains(err.Error(), "two conditions") {
		t.Errorf("conditions of one folder: %v", err)
	}
}

// Results of two settings are never mixed up under one name.
func TestAChangedStudyIsRefused(t *testing.T) {
	dir := t.TempDir()
	st := &state{path: filepath.Join(dir, "state.json")}
	run := func(overrides ...string) []*Run {
		return []*Run{{Condition: "a", Seed: 1, Dir: filepath.Join(dir, "run"), Overrides: overrides, Status: Pending}}
	}
	if _, err := st.plan(run("actor.lr=1")); err != nil {
		t.Fatal(err)
	}
	if _, err := st.plan(run("actor.lr=2")); err != nil {
		t.Errorf("nothing was run yet: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := st.plan(run("actor.lr=2")); err != nil {
		t.Error(err)
	}
	if got, err := st.plan(run("actor.lr=2", "run.threads=1")); err != nil || len(got[0].Overrides) != 2 {
		t.Errorf("other slots give a run other threads: %v", err)
	}
	st.Runs[0].Status = Finished
	if got, err := st.plan(run("actor.lr=2", "run.threads=4")); err != nil || got[0].Overrides[1] != "run.threads=1" {
		t.Errorf("a run that is over keeps the threads that it had: %v", err)
	}
	st.Runs[0].Status = Pending
	if _, err := st.plan(run("actor.lr=3")); err == nil || !strings.Contains(err.Error(), "actor.lr=3") {
		t.Errorf("got %v", err)
	}
}

// A run is not added to results of another content of its files; loggers' files, and those of runs without a step, may
// change.
func TestAChangedFileIsRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("b.toml", "[run]\nname = \"r\"\nloggers = [{ command = [\"python3\", \"show.py\"] }]\n"+
		"[model]\npath = \"m\"\n[[envs]]\ntag = \"x\"\n[envs.options]\ncommand = [\"python3\", \"env.py\"]\n")
	write("study.toml", "[study]\nname = \"s\"\nbase = \"b.toml\"\nseeds = 2\n"+
		"[[axes]]\nkey = \"actor.lr\"\nvalues = [1]\n")
	write("env.py", "old")
	write("show.py", "old")
	preview := func() (Preview, error) {
		s, err := Load("study.toml")
		if err != nil {
			t.Fatal(err)
		}
		return NewPreview(s, Sweeps)
	}
	p, err := preview()
	if err != nil {
		t.Fatal(err)
	}
	first, second := p.Runs[0], p.Runs[1]
	files, _ := json.Marshal(first.config.Files())
	first.Status = Finished
	if !strings.Contains(string(files), "env.py") || !strings.Contains(string(files), "show.py") {
		t.Fatalf("files %s", files)
	}
	state, _ := json.Marshal(map[string]any{"runs": []*Run{first}})
	write("studies/s/state.json", string(state))
	write(first.Dir+"/run.json", `{"status": "failed", "step": 0, "files_sha256": `+string(files)+"}")
	write("env.py", "new")
	write("show.py", "new")
	if _, err := preview(); err != nil {
		t.Errorf("no step was run with the old file: %v", err)
	}
	write(first.Dir+"/run.json", `{"status": "done", "step": 3, "files_sha256": `+string(files)+"}")
	if _, err := preview(); err == nil ||
		!strings.Contains(err.Error(), "env.py has changed since condition 1, seed 1 began") ||
		!strings.Contains(err.Error(), "condition 1, seed 2 would use it") {
		t.Errorf("another environment: %v", err)
	}
	write("env.py", "old")
	if _, err := preview(); err != nil {
		t.Errorf("the old file is back: %v", err)
	}
	second.Status = Finished
	state, _ = json.Marshal(map[string]any{"runs": []*Run{first, second}})
	write("studies/s/state.json", string(state))
	write("env.py", "new")
	if _, err := preview(); err != nil {
		t.Errorf("nothing is left to run: %v", err)
	}
}

// What a failed run lacked may be there when the study is started again; a diverged one would diverge again, and
// results stay.
func TestFailedRunsArePendingInAStudyStartedAgain(t *testing.T) {
	s := &Study{Name: "s", Output: t.TempDir()}
	st, err := openState(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(s.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	written := []*Run{
		{Condition: "no model", Status: Failed, ExitCode: 1, Attempts: 2}, {Condition: "no data", Status: Failed,
			ExitCode: exitcode.Usage, Attempts: 1},
		{Condition: "diverged", Status: Failed, ExitCode: exitcode.Diverged, Attempts: 1},
		{Condition: "killed", Status: Running, Attempts: 1},
		{Condition: "done", Status: Finished}, {Condition: "collapsed", Status: StoppedEarly,
			ExitCode: exitcode.StoppedEarly},
	}
	if err := st.change(func() { st.Runs = written }); err != nil {
		t.Fatal(err)
	}
	if st, err = openState(s); err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		status   Status
		attempts int
	}{{Pending, 0}, {Pending, 0}, {Failed, 1}, {Pending, 1}, {Finished, 0}, {StoppedEarly, 0}} {
		if r := st.Runs[i]; r.Status != want.status || r.Attempts != want.attempts {
			t.Errorf("%s: %s after %d attempts, want %s after %d", r.Condition, r.Status, r.Attempts, want.status,
				want.attempts)
		}
	}
}

// A study that cannot write its state starts no run, and says so.
func TestAStateThatCannotBeWrittenEndsTheStudy(t *testing.T) {
	console := metrics.NewConsole(io.Discard)
	dir := t.TempDir()
	r := &Run{Condition: "a", Seed: 1, Dir: filepath.Join(dir, "run"), Log: filepath.Join(dir, "run.log"),
		Status: Pending}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	x := &execution{study: &Study{}, slots: []slot{{threads: 1}}, state: &state{path: filepath.Join(file, "state.json"),
		Runs: []*Run{r}}}
	x.options = Options{Command: "true", Console: console}
	err := x.run(t.Context(), pending(x.state.Runs), progress{total: 1})
	if err == nil || !strings.Contains(err.Error(), "not a directory") || atomicfile.Exists(r.Log) {
		t.Errorf("got %v", err)
	}
}

// Conditions that are as good as the best are named: which of them goes on is the order of the file.
func TestTiesAreSaid(t *testing.T) {
	dir := t.TempDir()
	var runs []*Run
	for i, success := range []string{"0.25", "0.5", "0.5"} {
		r := &Run{Condition: string(rune('a' + i)), Seed: 1, Stage: 1, Dir: filepath.Join(dir, string(rune('a'+i))),
			Status: Finished}
		line := `{"schema":1,"step":1,"val-env/x/success":` + success + "}\n"
		if err := os.MkdirAll(r.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Dir, "metrics.jsonl"), []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r)
	}
	x := &execution{study: &Study{}}
	best, ok := x.best(runs)
	if !ok || best.Condition != "b" || !slices.Equal(best.Ties, []string{"c"}) {
		t.Errorf("%+v, %v", best, ok)
	}
	text := (&Summary{Best: []Best{best}, conditions: table.New(), compared: table.New()}).Text(80)
	if !strings.Contains(text, "as good: c; the first of them counts") ||
		!strings.Contains(text, "best: b (50.0 % success, mean of the last 3 validations of its runs): ") {
		t.Error(text)
	}
	for want, x := range map[string]*execution{"0.5 critic/score/mean at the end of its runs": {study: &Study{
		Objective: "critic/score/mean"}}, "50.0 % success at the last validation of its runs": {study: &Study{}, rungs: 2}} {
		if got := x.newBest(runs[1], 0.5).said; got != want {
			t.Errorf("the score is said as %q, want %q", got, want)
		}
	}
}
