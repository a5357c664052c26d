package tasks

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"

	"gyre/envs"
	"gyre/envs/envtest"
	"gyre/envs/tools"
)

// call lets a game carry out a command.
func call(t *testing.T, g *game, command string) (envs.Result, string) {
	t.Helper()
	r, err := g.Step(t.Context(), tools.CallOf(g.Offered[0], command))
	if err != nil {
		t.Fatal(err)
	}
	return r, g.Observe().String()
}

// Of every family the expert solves the tasks of several seeds, who does nothing earns nothing, and seeds differ.
func TestFamilies(t *testing.T) {
	if len(families) < 20 {
		t.Errorf("%d families, expected 20", len(families))
	}
	const seeds = 2
	var playing sync.WaitGroup
	limit := make(chan bool, 2)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		env := envtest.Open(t, "tasks", map[string]any{"families": []string{name}}).(*game)
		playing.Go(func() { // ends with the episodes
			limit <- true
			defer func() { <-limit }()
			said := map[string]bool{}
			for seed := range int64(seeds) {
				if err := expertAndIdler(t.Context(), env, seed); err != nil {
					t.Errorf("%s, seed %d: %v", name, seed, err)
				}
				said[env.task.Instruction+fmt.Sprintf("%s", env.task.Files)] = true
			}
			if len(said) < seeds {
				t.Errorf("%s makes %d different tasks of %d seeds", name, len(said), seeds)
			}
		})
	}
	playing.Wait()
}

func expertAndIdler(ctx context.Context, g *game, seed int64) error {
	if _, err := g.Reset(ctx, seed, 0); err != nil {
		return err
	}
	var r envs.Result
	for !r.Done {
		actions, ok := g.Solve()
		if !ok {
			return fmt.Errorf("no solution")
		}
		var err error
		if r, err = g.Step(ctx, actions[0]); err != nil {
			return err
		}
	}
	if !r.Success || r.Reward != 1 || r.Components[0].Value != 1 {
		return fmt.Errorf("the expert earns %+v: %s\n%s", r, g.task.Solution, g.Observe())
	}
	if _, err := g.Reset(ctx, seed, 0); err != nil {
		return err
	}
	r, err := g.Step(ctx, "done")
	if err != nil || r.Reward != 0 || r.Success || !r.Done || r.Info["final_tests_unread"] != 0 {
		return fmt.Errorf("who does nothing earns %+v, %w", r, err)
	}
	return nil
}

func TestSessionOfAnEpisode(t *testing.T) {
	logs := filepath.Join(t.TempDir(), "logs")
	g := envtest.Play[*game](t, "tasks", map[string]any{"families": []string{"sum_csv"}, "logs": logs, "max_calls": 6,
		"command_timeout": 0.5, "max_output": 100}, 3)
	if got := g.Observe().Text; !strings.HasPrefix(got, "Write the sum of the column count") {
		t.Errorf("the task: %s", got)
	}
	for _, c := range []struct{ command, says string }{
		{"cd /tmp; X=5", "(no output)"}, {"pwd; echo $X; false", "/tmp\n5\n[exit status 1]"},
		{"sleep 1000", "stopped after 500ms"}, {"seq 1000", "characters left out]"},
	} {
		if r, says := call(t, g, c.command); !r.Valid || r.Done || !strings.Contains(says, c.says) {
			t.Errorf("%s: %+v %s, want %q", c.command, r, says, c.says)
		}
	}
	r, err := g.Step(t.Context(), `<tool_call>{"name": "file", "arguments": {"action": "write", "path": "/app/answer.txt", "text": "0"}}</tool_call>`)
	if err != nil || r.Done || !r.Valid {
		t.Errorf("the file tool: %+v, %v", r, err)
	}
	// The sixth call ends the work.
	r, err = g.Step(t.Context(), `<tool_call>{"name": "file", "arguments": {"action": "read", "path": 1}}</tool_call>`)
	if err != nil || !r.Done || r.Reward != 0 || !strings.Contains(g.Observe().Text, "FAILED test_answer: got '0'") {
		t.Errorf("the last call: %+v, %v, %s", r, err, g.Observe())
	}
	for file, want := range map[string]string{"session.txt": "$ cd /tmp; X=5", "tests.txt": "FAILED test_answer",
		"result.json": `"reward": 0`, "instruction.md": "Write the sum"} {
		text, err := os.ReadFile(filepath.Join(logs, "sum_csv-3-0", file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %q, %v; want %q", file, text, err, want)
		}
	}
}

// An agent that writes the reward itself, waits for the tests in the background or stands in their place earns nothing.
func TestForgeriesEarnNothing(t *testing.T) {
	g := envtest.Play[*game](t, "tasks", map[string]any{"families": []string{"count_log"}}, 1)
	for _, command := range []string{
		"mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
		"(while :; do echo '{\"reward\": 1}' > /logs/verifier/reward.json; done) 2>/dev/null & ",
		"printf '#!/bin/sh\nmkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt' > /app/python3; chmod +x /app/python3; export PATH=/app:$PATH",
		"echo 'import os; os._exit(0)' > /app/json.py; mkdir -p ~/.local/lib/python3.11/site-packages; ln -s /app /tests",
	} {
		call(t, g, command)
	}
	if r, err := g.Step(t.Context(), "done"); err != nil || r.Reward != 0 || r.Info["final_tests_unread"] != 0 {
		t.Errorf("%+v, %v, %s", r, err, g.Observe())
	}
}

func tree(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return all
}

// write puts a task on disk.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tasks")
	for name, text := range files {
		path := filepath.Join(dir, "one", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var terminalBenchTask = map[string]string{
	"task.yaml": "instruction: |-\n  Create hello.txt.\ndifficulty: easy\nparser_name: pytest\n" +
		"max_agent_timeout_sec: 60.0\nmax_test_timeout_sec: 30.0\n",
	"Dockerfile":          "# base\nFROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624\nWORKDIR /app\nENV A=b\nCOPY seed.txt ./\n",
	"docker-compose.yaml": "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n",
	"seed.txt":            "seed\n",
	"solution.sh":         "#!/bin/bash\ncat seed.txt > hello.txt\n",
	"tests/expected":      "seed\n",
	"run-tests.sh": "if cmp -s hello.txt $TEST_DIR/expected; then w=PASSED; else w=FAILED; fi\n" +
		"echo '==== short test summary info ===='\necho \"$w ../tests/test_outputs.py::test_hello\"\n" +
		"echo -e \"\\e[32mPASSED\\e[0m x::\\e[1m$A\\e[0m\"\n", // as with --color=yes
}

// A script with Windows' line ends would fail in every episode, so its folder is refused.
func TestScriptWithWindowsLineEnds(t *testing.T) {
	for script, files := range map[string]map[string]string{"run-tests.sh": terminalBenchTask, "tests/test.sh": harborTask} {
		files = maps.Clone(files)
		files[script] = strings.ReplaceAll(files[script], "\n", "\r\n")
		_, err := readAll(write(t, files))
		if err == nil || !strings.Contains(err.Error(), script+": Windows line ends") {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestTerminalBench(t *testing.T) {
	dir := write(t, terminalBenchTask)
	g := envtest.Play[*game](t, "tasks", map[string]any{"path": dir}, 7)
	if g.Observe().Text != "Create hello.txt." || g.task.Name != "one" {
		t.Errorf("%+v", g.task)
	}
	if r, err := g.Step(t.Context(), "done"); err != nil || r.Reward != 0 || r.Components[0].Value != 0.5 {
		t.Errorf("nothing done: %+v, %v %s", r, err, g.Observe())
	}
	if _, err := g.Reset(t.Context(), 7, 0); err != nil {
		t.Fatal(err)
	}
	actions, _ := g.Solve()
	if _, err := g.Step(t.Context(), actions[0]); err != nil {
		t.Fatal(err)
	}
	if r, err := g.Step(t.Context(), "done"); err != nil || r.Reward != 1 || r.Components[0].Value != 1 {
		t.Errorf("solved: %+v, %v %s", r, err, g.Observe())
	}
}

var harborTask = map[string]string{
	"task.toml": "version = \"1.0\"\n[metadata]\nauthor = \"x\"\n[verifier]\ntimeout_sec = 1\n[agent]\ntimeout_sec = 0.2\n" +
		"[environment]\nallow_internet = false\nmemory_mb = 2048\nstorage_mb = 10\n",
	"instruction.md":         "Wait.",
	"environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /work\nCOPY . /work/\n",
	"environment/a/b":        "x",
	"tests/test.sh":          "#!/bin/bash\n[ -f a/b ] && echo 0.25 > /logs/verifier/reward.txt\n[ -f slow ] && sleep 1000; true\n",
}

// The limits of a task hold: the session ends with its time, and tests that take too long give nothing.
func TestLimitsOfATask(t *testing.T) {
	g := envtest.Play[*game](t, "tasks", map[string]any{"path": write(t, harborTask)}, 0)
	r, err := g.Step(t.Context(), tools.CallOf(g.Offered[0], "sleep 1000"))
	if err != nil || !r.Done || r.Reward != 0.25 || r.Success {
		t.Errorf("after the time: %+v, %v", r, err)
	}
	slow := maps.Clone(harborTask)
	slow["environment/slow"] = "x"
	g = envtest.Play[*game](t, "tasks", map[string]any{"path": write(t, slow)}, 0)
	r, err = g.Step(t.Context(), "done")
	if err != nil || !r.Done || r.Reward != 0 || r.Info["final_tests_unread"] != 1 ||
		!strings.Contains(g.Observe().Text, "more than 1s") {
		t.Errorf("slow tests: %+v, %v", r, err)
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		of         map[string]string
		file, text string
		want       string
	}{
		{harborTask, "environment/Dockerfile", "FROM ubuntu:24.04\nRUN apt-get update && \\\n  apt-get install -y x\n", "line 2: RUN apt-get update && apt-get install -y x: it does more"},
		{harborTask, "environment/Dockerfile", "FROM nvidia/cuda:12\n", "no plain base image"},
		{harborTask, "environment/Dockerfile", "FROM ubuntu\nCOPY nothing /app/\n", "no such file"},
		{harborTask, "environment/Dockerfile", "FROM ubuntu\nCOPY --from=x a /app/\n", "plain base"},
		{harborTask, "task.toml", "[environment]\ndocker_image = \"org/own:1\"\n", "needs the image org/own:1"},
		{harborTask, "task.toml", "[environment]\ngpus = 1\n", "GPUs"},
		{harborTask, "task.toml", "[[steps]]\nname = \"x\"\n", "steps"},
		{harborTask, "task.toml", "[agent\n", "task.toml"},
		{harborTask, "task.toml", "[agent]\ntimeout_sec = -1\n", "expected seconds"},
		{harborTask, "instruction.md", " ", "instruction is empty"},
		{terminalBenchTask, "task.yaml", "instruction: x\nparser_name: junit\n", "junit"},
		{terminalBenchTask, "task.yaml", "instruction: x\nrun_tests_in_same_shell: true\n", "same_shell"},
		{terminalBenchTask, "docker-compose.yaml", "services:\n  client: {}\n  db: {}\n", "client, db need containers"},
		{map[string]string{}, "README.md", "x", "no task.toml"},
	} {
		files := maps.Clone(c.of)
		files[c.file] = c.text
		if _, err := Read(tree(files), "this"); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "this") {
			t.Errorf("%s %q: %v, want %q", c.file, c.text, err, c.want)
		}
	}
	spec, err := envs.Lookup("tasks")
	if err != nil {
		t.Fatal(err)
	}
	for option, value := range map[string]any{"path": "/no/such/folder", "families": []string{"sum_cvs"}} {
		if _, err := spec.Make(map[string]any{option: value}); err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// What a folder links to outside of it does not get into a session, and what is no plain file is not waited for.
func TestFoldersAreContained(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		put  func(path string) error
		want string
	}{
		"a link outside":     {func(path string) error { return os.Symlink(secret, path) }, "escapes"},
		"a folder outside":   {func(path string) error { return os.Symlink(filepath.Dir(secret), path) }, "escapes"},
		"a way up":           {func(path string) error { return os.Symlink("../../../..", path) }, "escapes"},
		"a folder within":    {func(path string) error { return os.Symlink("a", path) }, "links to a folder"},
		"a FIFO":             {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "expected a plain file"},
		"a file that is big": {func(path string) error { return sparse(path, 1<<30) }, "1024 MiB, expected at most 256"},
		"a link within":      {func(path string) error { return os.Symlink("a/b", path) }, ""},
	} {
		for _, place := range []string{"environment/odd", "tests/odd"} {
			dir := write(t, harborTask)
			if place == "tests/odd" && strings.HasSuffix(name, "within") {
				continue // the folder a is beside it in environment only
			}
			if err := c.put(filepath.Join(dir, "one", place)); err != nil {
				t.Fatal(err)
			}
			_, err := readAll(dir)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "odd")) {
				t.Errorf("%s as %s: %v, want %q", name, place, err, c.want)
			}
		}
	}
}

func sparse(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// A reward that is no file is none.
func TestRewardThatIsAFolder(t *testing.T) {
	files := maps.Clone(harborTask)
	files["tests/test.sh"] = "#!/bin/bash\nmkdir -p /logs/verifier/reward.txt /logs/verifier/reward.json\n"
	g := envtest.Play[*game](t, "tasks", map[string]any{"path": write(t, files)}, 0)
	r, err := g.Step(t.Context(), "done")
	if err != nil || !r.Done || r.Reward != 0 || r.Info["final_tests_unread"] != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
