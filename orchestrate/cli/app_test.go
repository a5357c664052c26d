package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"gyre/internal/exitcode"
	"gyre/orchestrate/run/interrupt"
)

// call runs one command line against a small set of commands and returns what came out.
func call(t *testing.T, action func(*cli.Context) error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	app := newApp([]*cli.Command{
		{Name: "train", Usage: "train", ArgsUsage: "[CONFIG] [key=value ...]", Action: action, Flags: []cli.Flag{
			&cli.BoolFlag{Name: "resume"}, &cli.IntFlag{Name: "steps", Aliases: []string{"n"}}}},
		{Name: "score", ArgsUsage: "[FILE]", Action: action, Flags: []cli.Flag{&cli.StringFlag{Name: "model", Required: true}}},
		{Name: "model", Subcommands: []*cli.Command{{Name: "info", ArgsUsage: "DIR", Action: action}}},
	}, &out, &errs)
	code = run(context.Background(), app, append([]string{"gyre"}, args...))
	return code, out.String(), errs.String()
}

func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"trian":                  "did you mean train?",
		"model inof":             "did you mean info?",
		"train x.toml --resum":   "did you mean --resume?",
		"train --steps many":     `invalid value "many"`,
		"train --steps":          "--steps needs a value",
		"score --model= in":      "--model needs a value",
		"score in.jsonl":         "gyre score needs --model",
		"--resume train x.toml":  "flags follow the command",
		"train x.toml --unknown": "has no flag --unknown;",
		"model info":             "gyre model info takes DIR, got 0 arguments",
		"model info a b":         "gyre model info takes DIR, got 2 arguments",
		"score a b --model m":    "takes [FILE], got 2 arguments",
	} {
		code, stdout, stderr := call(t, func(*cli.Context) error { return nil }, strings.Fields(line)...)
		if code != exitcode.Usage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("gyre %s: exit %d, stderr %q; want exit 2 and one line with %q", line, code, stderr, want)
		}
		if stdout != "" {
			t.Errorf("gyre %s: stdout %q, want none", line, stdout)
		}
	}
}

func TestFlagsMayFollowArguments(t *testing.T) {
	for _, line := range []string{
		"train a.toml b=1 --resume -n 3", "train --resume a.toml --steps=3 b=1", "train -n 3 a.toml --resume b=1"} {
		var got string
		code, _, stderr := call(t, func(c *cli.Context) error {
			got = fmt.Sprint(c.Bool("resume"), c.Int("steps"), c.Args().Slice())
			return nil
		}, strings.Fields(line)...)
		if code != 0 || got != "true 3 [a.toml b=1]" {
			t.Errorf("gyre %s: exit %d (%s), parsed %q", line, code, stderr, got)
		}
	}
	var got []string
	call(t, func(c *cli.Context) error { got = c.Args().Slice(); return nil }, "train", "a", "--", "--resume")
	if len(got) == 0 || got[len(got)-1] != "--resume" {
		t.Errorf("after --: %q, want --resume as an argument", got)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, line := range []string{"", "--help", "train --help", "train x.toml -h", "model", "model info --help",
		"score -h"} {
		code, stdout, stderr := call(t, nil, strings.Fields(line)...)
		if code != 0 || !strings.Contains(stdout, "USAGE") || stderr != "" {
			t.Errorf("gyre %s: exit %d, stdout %q, stderr %q; want help", line, code, stdout, stderr)
		}
	}
	if code, stdout, _ := call(t, nil, "--version"); code != 0 || !strings.Contains(stdout, "go1.") {
		t.Errorf("gyre --version: exit %d, %q", code, stdout)
	}
}

// The program's own help, with its real verbs, whichever way somebody asks for it.
func TestProgramHelp(t *testing.T) {
	var want string
	for _, line := range []string{"", "--help", "-h", "help"} {
		var out, errs bytes.Buffer
		code := run(context.Background(), newApp(commands(), &out, &errs), strings.Fields("gyre "+line))
		if want == "" {
			want = out.String()
		}
		if code != 0 || errs.Len() > 0 || out.String() != want || !strings.Contains(want, "analyze ") {
			t.Errorf("gyre %s: exit %d, stderr %q, stdout:\n%s", line, code, errs.String(), out.String())
		}
	}
	for _, line := range strings.Split(want, "\n") {
		if n := utf8.RuneCountInString(line); n > 80 {
			t.Errorf("gyre --help: %d columns: %s", n, line)
		}
	}
	for line, want := range map[string]string{
		"help model convert": "gyre model convert", "help train": "gyre train", "help trian": "did you mean train?",
		"help model inof": "did you mean info?",
	} {
		var out bytes.Buffer
		code := run(context.Background(), newApp(commands(), &out, &out), strings.Fields("gyre "+line))
		if refused := strings.Contains(want, "?"); code != map[bool]int{false: 0, true: exitcode.Usage}[refused] ||
			!strings.Contains(out.String(), want) {
			t.Errorf("gyre %s: exit %d, wrote:\n%s\nwant %q", line, code, out.String(), want)
		}
	}
}

// Every level has help that fits a terminal of 80 columns, and every verb that takes something shows how.
func TestHelpFits(t *testing.T) {
	var visit func(path string, level []*cli.Command)
	visit = func(path string, level []*cli.Command) {
		for _, c := range level {
			line := strings.TrimSpace(path + " " + c.Name)
			var out bytes.Buffer
			if code := run(context.Background(), newApp(commands(), &out, &out),
				strings.Fields("gyre "+line+" --help")); code != 0 {
				t.Errorf("gyre %s --help: exit %d", line, code)
			}
			for _, text := range strings.Split(out.String(), "\n") {
				if n := utf8.RuneCountInString(text); n > 80 {
					t.Errorf("gyre %s --help: %d columns: %s", line, n, text)
				}
			}
			if c.Action != nil && len(c.Flags) > 1 && strings.Count(out.String(), "gyre "+line) < 3 {
				t.Errorf("gyre %s --help shows no example:\n%s", line, out.String())
			}
			visit(line, c.Subcommands)
		}
	}
	visit("", commands())
}

func TestExitCodes(t *testing.T) {
	failure := errors.New("disk full")
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0}, {failure, 1}, {Usagef("no"), 2}, {fmt.Errorf("step 3: %w", &ExitError{Code: 5, Err: failure}), 5},
		{fmt.Errorf("train: %w", &interrupt.Error{Signal: syscall.SIGINT}), 130},
		{&interrupt.Error{Signal: syscall.SIGTERM}, 143},
	} {
		code, _, stderr := call(t, func(*cli.Context) error { return c.err }, "train")
		if code != c.code {
			t.Errorf("%v: exit %d, want %d", c.err, code, c.code)
		}
		if c.err != nil && strings.Count(stderr, c.err.Error()) != 1 {
			t.Errorf("%v: printed as %q, want once", c.err, stderr)
		}
	}
}

func TestColourOnlyWhenWanted(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("CLICOLOR_FORCE", "1")
	if got := paint(&bytes.Buffer{}, red, "x"); got != "\x1b[31mx\x1b[0m" {
		t.Errorf("forced colour: %q", got)
	}
	t.Setenv("NO_COLOR", "1")
	if got := paint(&bytes.Buffer{}, red, "x"); got != "x" {
		t.Errorf("NO_COLOR: %q", got)
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("CLICOLOR_FORCE", "")
	if got := paint(&bytes.Buffer{}, red, "x"); got != "x" {
		t.Errorf("not a terminal: %q", got)
	}
}
