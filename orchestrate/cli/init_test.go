package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gyre/orchestrate/run/rundir"
)

// What `gyre init` writes trains as it is, in a folder with nothing else: two small steps of each kind that gyre train
// plays. The user's files belong to the run.
func TestInitTrains(t *testing.T) {
	for kind, files := range map[string]string{"data": "held_out.jsonl reward.py train.jsonl", "env": "env.py",
		"agent": "agent.py reward.py"} {
		dir := filepath.Join(t.TempDir(), "mine")
		said := mustIn(t, filepath.Dir(dir), "init", "mine", "--kind", kind)
		if !strings.HasSuffix(said, "Next:\ncd mine\ngyre train train.toml\n") {
			t.Errorf("%s: %s", kind, said)
		}
		mustIn(t, dir, "train", "train.toml", "run.steps=2", "run.validate_first=false", "envs.0.groups=2",
			"envs.0.group_size=3", "validation.envs.0.groups=2")
		run, err := rundir.Read(filepath.Join(dir, "runs", kind))
		if err != nil || len(run.Records) != 2 || run.Config.Actor.MiniBatch != 6 || run.Info.Status != "done" {
			t.Fatalf("%s: %+v, %v", kind, run, err)
		}
		for name := range strings.FieldsSeq(files) {
			if run.Info.Files[name] == "" {
				t.Errorf("%s: %s is not among %v", kind, name, run.Info.Files)
			}
		}
	}
}

// Nothing is overwritten, and a refused or failed beginning leaves nothing.
func TestInitOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ words, want string }{
		{"init .", "is not empty"}, {"init mine", "not a directory"}, {"init new --kind dta", "expected one of data, env"},
	} {
		code, _, stderr := runIn(t, dir, strings.Fields(c.words)...)
		if code != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("gyre %s: exit code %d\n%s", c.words, code, stderr)
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != 1 {
		t.Errorf("left: %v", list)
	}
	empty := t.TempDir()
	mustIn(t, empty, "init", ".")
	if list, _ := os.ReadDir(empty); len(list) != 5 {
		t.Errorf("in an empty folder: %v", list)
	}
}

// The loop of --kind tinker and the program of docs/tinker.md run as they are printed, where Tinker's client is
// installed (GYRE_TINKER_PYTHON names a Python that has it).
func TestTinkerProgramsRun(t *testing.T) {
	python := os.Getenv("GYRE_TINKER_PYTHON")
	if python == "" {
		python = "python3"
	}
	if exec.Command(python, "-c", "import tinker, transformers").Run() != nil {
		t.Skip("needs pip install tinker, in python3 or in what GYRE_TINKER_PYTHON names")
	}
	dir := filepath.Join(t.TempDir(), "mine")
	mustIn(t, filepath.Dir(dir), "init", "mine", "--kind", "tinker")
	page := string(readFile(t, "../../docs/tinker.md"))
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(page)
	if program == nil {
		t.Fatal("docs/tinker.md has no program")
	}
	text := strings.ReplaceAll(program[1], "models/smollm2-135m-instruct", "model")
	if err := os.WriteFile(filepath.Join(dir, "page.py"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	server := gyre(t, dir, "serve", "model", "--port", "0")
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Wait()
	defer server.Process.Kill()
	url := make([]byte, 200)
	n, err := out.Read(url)
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]string{"train.py 2": "step 2  reward 0.", "page.py": "step 10  loss "} {
		cmd := exec.Command(python, strings.Fields(words)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "TINKER_BASE_URL="+strings.TrimSpace(string(url[:n])), "TINKER_API_KEY=tml-local")
		said, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(said, []byte(want)) {
			t.Errorf("%s: %v\n%s", words, err, said)
		}
	}
}
