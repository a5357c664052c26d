package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"gyre/envs/sandbox"
)

// terminalBench is what of task.yaml says how a task is played.
type terminalBench struct {
	Instruction  string `yaml:"instruction"`
	Descriptions []struct {
		Key, Description string
	} `yaml:"descriptions"` // of older tasks
	Parser    string  `yaml:"parser_name"`
	Agent     float64 `yaml:"max_agent_timeout_sec"`
	Test      float64 `yaml:"max_test_timeout_sec"`
	SameShell bool    `yaml:"run_tests_in_same_shell"`
}

func readTerminalBench(folder fs.FS, t *Task) error {
	var b terminalBench
	content, err := fs.ReadFile(folder, "task.yaml")
	if err == nil {
		err = yaml.Unmarshal(content, &b)
	}
	switch {
	case err != nil:
		return fmt.Errorf("task.yaml: %w", err)
	case b.Parser != "" && b.Parser != "pytest":
		return fmt.Errorf("task.yaml: parser_name is %q, and only pytest's output is read", b.Parser)
	case b.SameShell:
		return errors.New("task.yaml: run_tests_in_same_shell: the tests run in a shell of their own, so that what an " +
			"agent leaves in its own cannot decide them")
	}
	t.Instruction = strings.TrimSpace(b.Instruction)
	for _, d := range b.Descriptions {
		if t.Instruction == "" && d.Key == "base" {
			t.Instruction = strings.TrimSpace(d.Description)
		}
	}
	if err := oneService(folder); err != nil {
		return err
	}
	if err := prepare(folder, t, ""); err != nil {
		return err
	}
	if t.Agent, err = seconds("max_agent_timeout_sec", b.Agent, 360); err != nil {
		return err
	}
	limit, err := seconds("max_test_timeout_sec", b.Test, 60)
	if err != nil {
		return err
	}
	var tests []sandbox.File
	if _, err := fs.Stat(folder, "tests"); err == nil {
		if tests, err = filesIn(folder, "tests", "/tests"); err != nil {
			return err
		}
	}
	script, err := fileOf(folder, "run-tests.sh", "/tests/run-tests.sh")
	if err == nil {
		err = unixLines("run-tests.sh", script)
	}
	if err != nil {
		return err
	}
	t.Trial = sandbox.Trial{Files: append(tests, script), Command: []string{"bash", "/tests/run-tests.sh"},
		Env: map[string]string{"TEST_DIR": "/tests"}, Limit: limit, Collect: []string{}}
	t.judge = judgePytest
	t.Solution, err = text(folder, "solution.sh")
	return err
}

// oneService refuses tasks whose containers are more than the agent's own.
func oneService(folder fs.FS) error {
	for _, name := range []string{"docker-compose.yaml", "docker-compose.yml"} {
		content, err := fs.ReadFile(folder, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var compose struct {
			Services map[string]struct {
				Volumes []string
			}
		}
		if err == nil {
			err = yaml.Unmarshal(content, &compose)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var services []string
		for service := range compose.Services {
			services = append(services, service)
		}
		slices.Sort(services)
		if len(services) > 1 {
			return fmt.Errorf("%s: the services %s need containers, %s", name, strings.Join(services, ", "), noImages)
		}
	}
	return nil
}
