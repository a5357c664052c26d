package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"gyre/envs/sandbox"
)

// harbor is what of task.toml says how a task is played; the rest is about the task.
type harbor struct {
	Verifier struct {
		Timeout float64           `toml:"timeout_sec"`
		Env     map[string]string `toml:"env"`
	} `toml:"verifier"`
	Agent struct {
		Timeout float64 `toml:"timeout_sec"`
	} `toml:"agent"`
	Environment struct {
		Image    string            `toml:"docker_image"`
		Memory   int               `toml:"memory_mb"`
		Storage  int               `toml:"storage_mb"`
		GPUs     int               `toml:"gpus"`
		Internet *bool             `toml:"allow_internet"`
		Env      map[string]string `toml:"env"`
	} `toml:"environment"`
	Steps []any `toml:"steps"`
}

func readHarbor(folder fs.FS, t *Task) error {
	var h harbor
	content, err := fs.ReadFile(folder, "task.toml")
	if err == nil {
		_, err = toml.Decode(string(content), &h)
	}
	if err != nil {
		return fmt.Errorf("task.toml: %w", err)
	}
	switch {
	case len(h.Steps) > 0:
		return errors.New("task.toml: it has steps, and only tasks of one step are played")
	case h.Environment.GPUs > 0:
		return errors.New("task.toml: it asks for GPUs, which sessions do not have")
	}
	instruction, err := fs.ReadFile(folder, "instruction.md")
	if err != nil {
		return err
	}
	t.Instruction = strings.TrimSpace(string(instruction))
	environment, err := fs.Sub(folder, "environment")
	if err != nil {
		return err
	}
	if err := prepare(environment, t, h.Environment.Image); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	for _, env := range []map[string]string{h.Environment.Env, h.Verifier.Env} {
		for name, value := range env {
			if strings.Contains(value, "${") {
				return fmt.Errorf("task.toml: %s is %q: variables of this machine are not given to tasks", name, value)
			}
		}
	}
	maps.Copy(t.Env, h.Environment.Env)
	t.MemoryMiB, t.DiskMiB = h.Environment.Memory, h.Environment.Storage
	t.Offline = h.Environment.Internet != nil && !*h.Environment.Internet
	if t.Agent, err = seconds("[agent] timeout_sec", h.Agent.Timeout, 600); err != nil {
		return err
	}
	limit, err := seconds("[verifier] timeout_sec", h.Verifier.Timeout, 600)
	if err != nil {
		return err
	}
	tests, err := filesIn(folder, "tests", "/tests")
	if err != nil {
		return err
	}
	at := slices.IndexFunc(tests, func(f sandbox.File) bool { return f.Path == "/tests/test.sh" })
	if at < 0 {
		return errors.New("no tests/test.sh, the script that judges")
	}
	if err := unixLines("tests/test.sh", tests[at]); err != nil {
		return err
	}
	tests[at].Mode |= 0o755 // which archives and checkouts may lose
	t.Trial = sandbox.Trial{Files: tests, Command: []string{"/tests/test.sh"},
		Env: h.Verifier.Env, Limit: limit, Collect: []string{rewardJSON, rewardText, reportJSON}}
	t.judge = judgeHarbor
	t.Solution, err = text(folder, "solution/solve.sh")
	return err
}
