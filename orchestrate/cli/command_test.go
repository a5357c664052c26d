package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for the gyre command: tests that kill, interrupt or look at exit codes start
// it as a process.
func TestMain(m *testing.M) {
	if os.Getenv("GYRE_TEST_COMMAND") == "1" { // this is a process that a test has started
		if poor := os.Getenv("GYRE_TEST_POOR_RANK"); poor != "" && poor == os.Getenv("GYRE_RANK") {
			takeMemoryAway()
		}
		os.Exit(Main(os.Args))
	}
	for name, value := range environment {
		os.Setenv(name, value)
	}
	code := m.Run()
	if tiny.dir != "" {
		os.RemoveAll(filepath.Dir(tiny.dir))
	}
	os.Exit(code)
}

// environment is that of every command: one kernel thread, so that tests do not fight over cores, and no results that
// earlier tests have left.
var environment = map[string]string{"GYRE_TEST_COMMAND": "1", "GYRE_THREADS": "1", "NO_COLOR": "1", "GYRE_KEEP": ""}

// gyre prepares the command as a process in a working directory.
func gyre(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	return cmd
}

// runGyre runs the command as a process and returns its exit code, stdout and stderr.
func runGyre(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := gyre(t, dir, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if _, ok := err.(*exec.ExitError); !ok {
			t.Fatal(err)
		}
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// runIn is runGyre in this process, which takes a fraction of the time; ranks that the command starts are processes.
// The working directory and the arguments are the process's: tests that call it do not run in parallel.
func runIn(t *testing.T, dir string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	before, err := os.Getwd()
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	own := os.Args
	os.Args = append([]string{own[0]}, args...)
	defer func() {
		os.Args = own
		if err := os.Chdir(before); err != nil {
			t.Fatal(err)
		}
	}()
	return runHere(t, args...)
}

// mustIn is runIn of a command that has to succeed; it returns its stdout.
func mustIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, stdout, stderr := runIn(t, dir, args...)
	if code != 0 {
		t.Fatalf("gyre %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// runHere is runIn in the process's own working directory. A command that does not end by itself is stopped.
func runHere(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	code = run(ctx, newApp(commands(), &out, &errs), append([]string{"gyre"}, args...))
	return code, out.String(), errs.String()
}

// mustGyre runs a command that has to succeed and returns its stdout.
func mustGyre(t *testing.T, dir string, args ...string) string {
	t.Helper()
	code, stdout, stderr := runGyre(t, dir, args...)
	if code != 0 {
		t.Fatalf("gyre %s: exit code %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

// linkTo makes a symbolic link, and the folders above it.
func linkTo(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

var tiny struct {
	once sync.Once
	dir  string
	err  string
}

// tinyPolicy makes, once per test binary, a policy of some ten thousand parameters with its tokenizer.
func tinyPolicy(t *testing.T) string {
	t.Helper()
	tiny.once.Do(func() {
		parent, err := os.MkdirTemp("", "gyre-test-")
		if err != nil {
			tiny.err = err.Error()
			return
		}
		tiny.dir = filepath.Join(parent, "policy")
		code, _, stderr := runGyre(t, parent, "model", "init", tiny.dir, "--hidden", "16", "--layers", "2", "--heads",
			"2", "--kv-heads", "1",
			"--intermediate", "32", "--vocab", "300", "--seed", "3")
		if code != 0 {
			tiny.err = stderr
		}
	})
	if tiny.err != "" {
		t.Fatal(tiny.err)
	}
	return tiny.dir
}

// tinyConfig writes an experiment that takes a second or two.
func tinyConfig(t *testing.T, dir, extra string) string {
	t.Helper()
	path := filepath.Join(dir, "tiny.toml")
	text := fmt.Sprintf(`
[run]
name = "tiny"
steps = 6
validate_every = 3
save_every = 1
output = "runs"
[model]
path = %q
dtype = "float32"
[[envs]]
tag = "sokoban"
groups = 2
group_size = 4
max_turns = 2
[[validation.envs]]
tag = "sokoban"
groups = 4
group_size = 1
max_turns = 2
[rollout]
prompt = "compact"
think = false
max_tokens = 8
max_length = 300
[actor]
lr = 1e-3
mini_batch = 4
[analysis]
every = 2
[checkpoint]
keep = 2
%s`, tinyPolicy(t), extra)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
