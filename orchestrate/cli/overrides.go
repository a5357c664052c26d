package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	_ "gyre/envs/builtin"
	"gyre/internal/nearest"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

// loadConfig reads the command's arguments, CONFIG [key=value ...], and prints warnings. Environments are checked too:
// a wrong tag or option is reported with its line, together with everything else. given says whether the run gets its
// episodes from a file: it then needs no environments.
func loadConfig(c *cli.Context, given func(*config.Config) bool) (*config.Config, error) {
	path, overrides := c.Args().First(), c.Args().Tail()
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
	loaded, err := config.LoadFor(given, path, overrides, experiment.CheckEnvironments(c.Context))
	if err != nil || silentRank() {
		return loaded, err
	}
	judged := loaded
	if given(loaded) {
		judged = loaded.Given()
	}
	for _, w := range judged.Warnings() {
		warn(c, w)
	}
	return loaded, nil
}

// runArgument is the run's directory that a command was given in place of a configuration; "" = none.
func runArgument(c *cli.Context) string {
	if path := filepath.Clean(c.Args().First()); exists(filepath.Join(path, "config.toml")) {
		return path
	}
	return ""
}

// playing is loadConfig's given for commands that always play.
func playing(*config.Config) bool { return false }

func exists(path string) bool { _, err := os.Stat(path); return err == nil }
