package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Every way in which a configuration names a file is found: options, the words of a command or of a line for sh, a
// Python module with what it imports from its folder, the chat template. Programs on the path and folders are not.
func TestFilesThatAConfigurationNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"data/train.jsonl": "{}", "data/held.jsonl": "{}", "agent.py": "from tools.web import get\nimport json, helpers",
		"helpers.py": "", "tools/web.py": "from . import page", "tools/page.py": "", "reward.py": "", "dance.py": "",
		"chat.jinja": "", "sink.py": "", "unused.py": "", "python3/x": "",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &Config{
		Model: Model{Path: "data", ChatTemplate: "chat.jinja"},
		Run:   Run{Loggers: []Logger{{Name: "jsonl"}, {Command: []string{"python3", "sink.py"}}}},
		Envs: []Env{{Options: map[string]any{"file": "data/train.jsonl", "shuffle": true}},
			{Options: map[string]any{"command": "X=1 python3 ./agent.py --say 'hello'"}}},
		Validation: Validation{Envs: []Env{{Options: map[string]any{"file": "data/held.jsonl"}},
			{Options: map[string]any{"command": []any{"python3", "host.py", "--factory", "dance:make"}}}}},
		Rewards: []Reward{{Options: map[string]any{"command": []any{"python3", "reward.py"}}}},
	}
	found := c.Files()
	want := []string{"agent.py", "chat.jinja", "dance.py", "data/held.jsonl", "data/train.jsonl", "helpers.py", "reward.py",
		"sink.py", "tools/page.py", "tools/web.py"}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"; found["data/held.jsonl"] != want {
		t.Errorf("sha256 of {} is %s, want %s", found["data/held.jsonl"], want)
	}
}
