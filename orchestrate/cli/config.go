package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	_ "gyre/envs/builtin"
	"gyre/internal/atomicfile"
	"gyre/internal/nearest"
	"gyre/orchestrate/compat/translate"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

// loadConfig is readConfig, and prints warnings.
func loadConfig(c *cli.Context, given func(*config.Config) bool) (*config.Config, error) {
	loaded, err := readConfig(c, given)
	if err != nil {
		return nil, err
	}
	judged := loaded
	if given(loaded) {
		judged = loaded.Given()
	}
	warnAll(c, judged.Warnings())
	return loaded, nil
}

// warnAll prints warnings, of ranks on the one that speaks.
func warnAll(c *cli.Context, list []string) {
	for _, w := range list {
		if !silentRank() {
			warn(c, w)
		}
	}
}

// readConfig reads the command's arguments, CONFIG [key=value ...]. Environments are checked too: a wrong
// tag or option is reported with its line, together with everything else. given says whether the run gets its episodes
// from a file: it then needs no environments. others are arguments that the command reads itself.
func readConfig(c *cli.Context, given func(*config.Config) bool, others ...string) (*config.Config, error) {
	path, overrides := c.Args().First(), slices.DeleteFunc(c.Args().Tail(), func(word string) bool {
		return slices.Contains(others, word)
	})
	if strings.Contains(path, "=") {
		return nil, Usagef("the configuration file comes before overrides such as %q: %s %s", path, c.Command.HelpName,
			c.Command.ArgsUsage)
	}
	for _, word := range overrides {
		if !strings.Contains(word, "=") {
			return nil, Usagef("expected key=value after the configuration file, got %q: %s %s", word,
				c.Command.HelpName, c.Command.ArgsUsage)
		}
	}
	if run := runArgument(c); run != "" {
		path = filepath.Join(run, "config.toml")
		overrides = append([]string{"run.output=" + strconv.Quote(filepath.Dir(run)),
			"run.name=" + strconv.Quote(filepath.Base(run))}, overrides...)
	}
	if info, err := os.Stat(path); err != nil {
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.toml")) // none where the pattern is no pattern
		return nil, Usagef("configuration %s cannot be read: %w%s", path, err, nearest.Hint(path, beside))
	} else if info.IsDir() {
		return nil, Usagef("%s is a directory, expected a configuration (TOML) or a run's directory, which has a "+
			"config.toml", path)
	}
	return config.LoadFor(given, path, overrides, experiment.CheckEnvironments(c.Context))
}

// runArgument is the run's directory that a command was given in place of a configuration; "" = none.
func runArgument(c *cli.Context) string {
	if path := filepath.Clean(c.Args().First()); atomicfile.Exists(path, "config.toml") {
		return path
	}
	return ""
}

// playing is loadConfig's given for commands that always play.
func playing(*config.Config) bool { return false }

func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "configurations of other programs",
		Subcommands: []*cli.Command{{
			Name: "translate", Usage: "write RAGEN's or verl's settings as a configuration",
			ArgsUsage: "[SCRIPT] [key=value ...]",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "config-name", Aliases: []string{"cn"},
					Usage: "start from RAGEN's task `NAME`: _2_sokoban"},
				text("yaml", "start from a resolved `FILE`"),
				text("config", "start from verl's `FILE`"),
				text("m", "`MODULE` of python -m: verl.trainer.main_ppo"),
				text("train-sh", "words of the first RAGEN's train.sh for `ENV`"),
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the TOML to `FILE`"},
				toggle("keys", "print what keys with these words become"),
			},
			Action: translateConfig,
		}},
	}
}

func translateConfig(c *cli.Context) error {
	if c.Bool("keys") {
		lines := translate.Keys(c.Args().Slice())
		if lines == "" {
			return Usagef("no key contains %s", strings.Join(c.Args().Slice(), " or "))
		}
		return printf(c, "%s", lines)
	}
	var words []string
	for _, flag := range []string{"config-name", "yaml", "config", "train-sh"} {
		if value := c.String(flag); value != "" {
			words = append(words, "--"+flag+"="+value)
		}
	}
	if len(words) > 1 {
		return Usagef("--config-name, --yaml, --config and --train-sh exclude one another")
	}
	if module := c.String("m"); module != "" {
		words = append(words, "-m="+module)
	}
	result, problem := translate.Words(append(words, c.Args().Slice()...), experiment.CheckEnvironments(c.Context))
	if result.Document == nil {
		return Usagef("%w", problem)
	}
	for _, u := range result.Unused {
		fmt.Fprintf(c.App.ErrWriter, "no counterpart: %s=%s: %s\n", u.Key, u.Value, u.Why)
	}
	for _, note := range result.Notes {
		fmt.Fprintln(c.App.ErrWriter, "note:", note)
	}
	file := c.String("output")
	if len(result.Command) > 0 {
		fmt.Fprintf(c.App.ErrWriter, "run it with: gyre train %s %s\n", cmp.Or(file, "FILE"),
			strings.Join(result.Command, " "))
	}
	text, err := result.Text(problem), error(nil)
	if file != "" {
		err = atomicfile.Write(file, func(w io.Writer) error { _, err := w.Write(text); return err })
	} else {
		err = printf(c, "%s", text)
	}
	if err == nil && problem != nil {
		err = Usagef("%s is written, and lacks something: %w", cmp.Or(file, "the configuration"), problem)
	}
	return err
}
