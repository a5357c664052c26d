package cli

import (
	"cmp"
	"fmt"
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
	usage := c.Command.HelpName + " " + cmp.Or(c.Command.ArgsUsage, "CONFIG [key=value ...]")
	if c.NArg() == 0 {
		return nil, Usagef("usage: %s; see %s --help", usage, c.Command.HelpName)
	}
	for i, word := range c.Args().Slice() {
		if isOverride := strings.Contains(word, "="); i == 0 && isOverride {
			return nil, Usagef("the configuration file comes before overrides such as %q: %s", word, usage)
		} else if i > 0 && !isOverride {
			return nil, Usagef("expected key=value after the configuration file, got %q: %s", word, usage)
		}
	}
	path, overrides := c.Args().First(), c.Args().Tail()
	if run := runArgument(c); run != "" {
		path = filepath.Join(run, "config.toml")
		overrides = append([]string{"run.output=" + strconv.Quote(filepath.Dir(run)), "run.name=" +
			strconv.Quote(filepath.Base(run))}, overrides...)
	}
	if err := configExists(path); err != nil {
		return nil, err
	}
	loaded, err := config.LoadFor(given, path, overrides, experiment.CheckEnvironments(c.Context))
	if err != nil {
		return nil, err
	}
	judged := loaded
	if given(loaded) {
		judged = loaded.Given()
	}
	for _, w := range judged.Warnings() {
		if silentRank() {
			break
		}
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

// configExists refuses a path that is no file, with the name of one that is.
func configExists(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return Usagef("%s is a directory, expected a configuration (TOML) or a run's directory, which has a config.toml", path)
	case err != nil:
		// a folder with pattern characters has no hints
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(path),
			"*.toml"))
		return Usagef("configuration %s cannot be read: %w%s", path, err, nearest.Hint(path, beside))
	}
	return nil
}

// warn writes a warning.
func warn(c *cli.Context, text string) {
	fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "warning:"), text)
}

// playing is loadConfig's given for commands that always play.
func playing(*config.Config) bool { return false }
