package experiment

import (
	"fmt"
	"strings"
	"testing"

	"gyre/orchestrate/config"
)

// A reward that could not judge a reply refuses the configuration, at its place and once.
func TestRewardsAreChecked(t *testing.T) {
	check := func(tag, reward string) error {
		text := fmt.Sprintf("[model]\npath = \"m\"\n[[envs]]\ntag = %q\n[[rewards]]\nname = 'truncation'\n[[rewards]]\n%s\n",
			tag, reward)
		_, err := config.Parse("x.toml", []byte(text), nil, CheckEnvironments(t.Context()))
		return err
	}
	program := func(command string) string {
		return "name = 'judge'\noptions = { component = 'command', command = " + command + " }"
	}
	for reward, want := range map[string]string{
		`name = "corectness"`: "did you mean correctness?",
		"name = 'correctness'\noptions = { mode = 'lenent' }":  "did you mean lenient?",
		"name = 'length'\noptions = { target = -1 }":           "option target",
		"name = 'format'\noptions = { pattern = '(' }":         "option pattern",
		program(`["nopython", "x"]`):                           "executable file not found",
		program(`["sh", "nofile.sh"]`):                         "the program ends before it is asked; its last words",
		program(`["sh", "-c", "echo hello; cat >/dev/null"]`):  "a line that nobody asked for",
		program(`"sh nofile.sh"`):                              "option command",
		program(`["sh", "-c", "read l; echo mended"]`):         "",
		program(`["sh", "-c", "while read l; do echo; done"]`): "",
	} {
		err := check("Arithmetic", reward)
		if want == "" && err != nil || want != "" && (err == nil || strings.Count(err.Error(), want) != 1 ||
			!strings.Contains(err.Error(), "rewards.1")) {
			t.Errorf("%s: %v, want %q at rewards.1, once", reward, err, want)
		}
	}
	if err := check("Countdown", program(`["nopython"]`)); err != nil {
		t.Errorf("an environment that names its components itself: %v", err)
	}
}
