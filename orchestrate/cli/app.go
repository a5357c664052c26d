// Package cli is the gyre command: verbs that parse flags and call the package that does the work.
//
// Results go to stdout, logs and progress to stderr. Exit codes are listed in errors.go.
package cli

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/docs"
	"gyre/internal/nearest"
	"gyre/orchestrate/run/interrupt"
	"gyre/orchestrate/run/spans"
)

// commands lists every verb, in the order of a project's life.
func commands() []*cli.Command {
	return []*cli.Command{initCommand(), demoCommand(), trainCommand(), evalCommand(), analyzeCommand(), sftCommand(),
		serveCommand(), chatCommand(), generateCommand(), scoreCommand(), tokenizeCommand(), gradeCommand(),
		dataCommand(), plotCommand(), componentsCommand(), reportCommand(), runsCommand(), episodesCommand(),
		uiCommand(), whyCommand(), whatIfCommand(), sweepCommand(), searchCommand(), estimatorCommand(), modelCommand(),
		envCommand(),
		configCommand(), doctorCommand(), helpCommand(), versionCommand(), completionCommand()}
}

// Main runs the command line args (args[0] is the program) and returns the process's exit code.
func Main(args []string) int {
	messages := io.Writer(os.Stderr)
	if silentRank() {
		messages = io.Discard
	}
	ctx, stop := interrupt.Watch(context.Background(), messages, os.Exit)
	defer stop()
	told, err := spans.Open(ctx, messages)
	if err != nil {
		return conclusion(messages, ctx, err)
	}
	defer told()
	return run(ctx, newApp(commands(), os.Stdout, os.Stderr), args)
}

func run(ctx context.Context, app *cli.App, args []string) int {
	arranged, err := arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, arranged)
	}
	return conclusion(app.ErrWriter, ctx, err)
}

func newApp(commands []*cli.Command, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:                 "gyre",
		HelpName:             "gyre",
		Usage:                "train language-model agents, and see why the training moves",
		Version:              version(),
		Commands:             commands,
		EnableBashCompletion: true,
		HideHelpCommand:      true,
		Flags:                []cli.Flag{cli.HelpFlag}, // which the library leaves out where a command is called help
		// A comma in --stop is a comma.
		DisableSliceFlagSeparator: true,
		Writer:                    stdout,
		ErrWriter:                 stderr,
		// Errors come back to run, which prints them once.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsageError,
	}
	for _, c := range commands {
		prepare(c, c.Name)
	}
	cli.FlagStringer = flagLine
	return app
}

// standardFlagLine is urfave/cli's line of a flag's help.
var standardFlagLine = cli.FlagStringer

// flagLine writes flags that can be given several times once: their help says it.
func flagLine(flag cli.Flag) string {
	names, usage, _ := strings.Cut(standardFlagLine(flag), "\t")
	names, _, _ = strings.Cut(names, " [")
	return names + "\t" + usage
}

// prepare gives a command and its sub-commands the behaviour that all of them share, and what docs/commands.md says of
// them.
func prepare(c *cli.Command, path string) {
	_, text, _ := strings.Cut(docs.Commands, "\n## "+path+"\n\n")
	c.Description, _, _ = strings.Cut(text, "\n\n## ")
	c.HideHelpCommand = true
	c.OnUsageError = onUsageError
	for _, sub := range c.Subcommands {
		prepare(sub, path+" "+sub.Name)
	}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	return Usagef("%w; see %s --help", err, c.Command.HelpName)
}

// release is the version that the Makefile builds (scripts/dist.py version); empty after a plain go build.
var release string

// version names the release, commit and compiler that made this binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, modified := "unknown commit", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", modified"
		}
	}
	name := release
	if name == "" {
		name = info.Main.Version
	}
	return fmt.Sprintf("%s (%s%s, %s)", name, commit, modified, info.GoVersion)
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "what a command does and takes", ArgsUsage: "[COMMAND ...]",
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return cli.ShowAppHelp(c)
			}
			words, err := arrange(c.App, slices.Concat([]string{c.App.Name}, c.Args().Slice(), []string{"--help"}))
			if err != nil {
				return err
			}
			return c.App.RunContext(c.Context, words)
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "the commit and the compiler that made this program",
		Action: func(c *cli.Context) error {
			return printf(c, "%s\n", c.App.Version)
		},
	}
}

// Shells ask the program itself what fits: words of commands, or flags where one has been begun. Where nothing does,
// files do.
//
//go:embed completion
var completions embed.FS

func completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "completions for a shell", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			shell := c.Args().First()
			if shell == "fish" {
				script, err := c.App.ToFishCompletion()
				return cmp.Or(err, printf(c, "%s", script))
			}
			script, err := completions.ReadFile("completion/" + shell)
			if err != nil {
				return Usagef("no completions for %q%s: expected bash, zsh or fish", shell,
					nearest.Hint(shell, []string{"bash", "zsh", "fish"}))
			}
			return printf(c, "%s", script)
		},
	}
}
