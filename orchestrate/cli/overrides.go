package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	_ "gyre/envs/builtin"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
)

// loadConfig reads the command's arguments, CONFIG [key=value ...], and prints warnings. Environments are checked too: a
// wrong tag or option is reported with its line, together with everything else. given says
// whether the run gets its episodes from a file: it then needs no environments.
func loadConfig(c *cli.Context, given func(*config.Config) bool) (*config.Config, error) {
	usage := c.Command.HelpName + " CONFIG [key=value ...]"
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
	loaded, err := config.LoadFor(given, c.Args().First(), c.Args().Tail(), experiment.CheckEnvironments(c.Context))
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
		fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "warning:"), w)
	}
	return loaded, nil
}

// playing is loadConfig's given for commands that always play.
func playing(*config.Config) bool { return false }
