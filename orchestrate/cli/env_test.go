package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gyre/envs"
	"gyre/internal/exitcode"
)

// env runs `gyre env args…` with the given standard input.
func env(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	app := newApp([]*cli.Command{envCommand()}, &out, &errs)
	app.Reader = strings.NewReader(stdin)
	code = run(context.Background(), app, append([]string{"gyre", "env"}, args...))
	return code, out.String(), errs.String()
}

func TestEnvList(t *testing.T) {
	if code, out, errs := env("", "list"); code != 0 || !strings.Contains(out, "CoordFrozenLake") ||
		!strings.HasPrefix(out, "tag ") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	_, out, _ := env("", "list", "--json")
	var rows []struct {
		Tag        string
		MaxActions int `json:"max_actions"`
		Options    map[string]any
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Tag == "LargerSokoban" {
			if r.MaxActions != 10 || r.Options["boxes"] != 2.0 {
				t.Errorf("LargerSokoban: %+v", r)
			}
			return
		}
	}
	t.Errorf("LargerSokoban is missing: %s", out)
}

func TestEnvInfo(t *testing.T) {
	code, out, errs := env("", "info", "coordsokoban", "glyphs=W.GCBA@", "--seed", "3")
	for _, want := range []string{"search_depth", "[6,6] ", "W: wall", "Up, Down, Left, Right", "Grid Map:", "seed 3"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d %s: no %q in\n%s", code, errs, want, out)
		}
	}
}

// What lists and explains environments fits a terminal of 80 columns.
func TestEnvironmentsFitTheTerminal(t *testing.T) {
	t.Setenv("COLUMNS", "80")
	lines := func(args ...string) {
		_, out, _ := env("", args...)
		out, _, _ = strings.Cut(out, "\nInstruction\n") // what a policy reads is not broken
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("gyre env %s: %d columns: %s", strings.Join(args, " "), n, line)
			}
		}
	}
	lines("list")
	for _, spec := range envs.List() {
		lines("info", spec.Tag)
	}
}

func TestEnvPlay(t *testing.T) {
	level := `level=["#####", "#@$.#", "#####"]`
	code, out, errs := env("u || jump\nright\nup\n", "play", "sokoban", level)
	for _, want := range []string{"9 actions left", `"jump" is no action here`, "success, return 10.8"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d %s: no %q in\n%s", code, errs, want, out)
		}
	}
	if _, out, _ := env("Up\nq\nRight\n", "play", "sokoban", level); !strings.Contains(out,
		"left with a return of -0.1") {
		t.Errorf("q does not quit: %s", out)
	}
	if _, out, _ := env(strings.Repeat("up\n", 20), "play", "sokoban", level); !strings.Contains(out,
		"no actions left, return -1\n") {
		t.Errorf("the tag's ten actions are not the limit: %s", out)
	}
	if _, out, _ := env("", "play", "sokoban", level, "--expert"); !strings.Contains(out, "actions (1): Right") ||
		!strings.Contains(out, "success, return 10.9") {
		t.Errorf("--expert: %s", out)
	}
	if _, out, _ := env("", "play", "calculatorqa", "--expert", "--seed", "3"); !strings.Contains(out,
		`"name": "calculator"`) || !strings.Contains(out, "success, return 1") {
		t.Errorf("--expert of a tool: %s", out)
	}
	if _, out, _ := env("", "play", "sokoban", `level=["########", "#@  $ .#", "########"]`, "--expert", "--actions",
		"3"); !strings.Contains(out, "no success within the actions") {
		t.Errorf("--expert with too few actions: %s", out)
	}
	if _, out, _ := env("", "play", "sokoban", "--expert", "--episodes", "20", "--actions",
		"100"); !strings.Contains(out, "sokoban, expert: 20 episodes from seed 123, at most 100") ||
		!strings.Contains(out, "success rate  100.0 %") {
		t.Errorf("--expert over many episodes: %s", out)
	}
	code, out, _ = env("", "play", "frozenlake", "--random", "--episodes", "40", "slippery=false")
	_, again, _ := env("", "play", "frozenlake", "--random", "--episodes=40", "slippery=false")
	if code != 0 || !strings.Contains(out, "success rate") || out != again {
		t.Errorf("exit %d, %s, then %s", code, out, again)
	}
}

func TestEnvUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"play":                                   "takes TAG",
		"play sokobann":                          "did you mean sokoban?",
		"info sokoban boxs=2":                    "did you mean boxes?",
		"info sokoban boxes":                     "expected key=value",
		"play bandit --random --epis":            "did you mean --episodes?",
		"play sokoban --random --episodes 0":     "expected at least 1",
		"play sokoban --actions -1":              "--actions is -1, expected",
		"play sokoban --random --expert boxes=1": "exclude each other",
		"play sokoban size=3x3 observation=rgb_": "expected one of grid",
	} {
		if code, out, errs := env("", strings.Fields(line)...); code != exitcode.Usage || !strings.Contains(errs, want) {
			t.Errorf("gyre env %s: exit %d, %q %q; want exit 2 and %q", line, code, out, errs, want)
		}
	}
}
