package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/envs"
	_ "gyre/envs/builtin"
	"gyre/orchestrate/config"
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
	loaded, err := config.LoadFor(given, c.Args().First(), c.Args().Tail(), checkEnvironments(c.Context))
	if err != nil {
		return nil, err
	}
	judged := loaded
	if given(loaded) {
		judged = loaded.Given()
	}
	for _, w := range judged.Warnings() {
		fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "warning:"), w)
	}
	return loaded, nil
}

// playing is loadConfig's given for commands that always play.
func playing(*config.Config) bool { return false }

// checkEnvironments makes one environment of every source and its first state, which checks tag and options: some, such as more boxes than
// a level has room for, only show then.
func checkEnvironments(ctx context.Context) func(*config.Config, func(key, format string, args ...any)) {
	return func(c *config.Config, report func(key, format string, args ...any)) {
		for i, e := range c.Envs {
			checkEnvironment(ctx, fmt.Sprintf("envs.%d", i), e, c.Run.EnvSeed, report)
		}
		for i, e := range c.Validation.Envs {
			if slices.ContainsFunc(c.Envs, func(t config.Env) bool {
				return t.Tag == e.Tag && reflect.DeepEqual(t.Options, e.Options)
			}) {
				continue // taken from the training source, which has just been checked
			}
			checkEnvironment(ctx, fmt.Sprintf("validation.envs.%d", i), e, c.Validation.Seed, report)
		}
	}
}

func checkEnvironment(ctx context.Context, path string, e config.Env, seed int64, report func(key, format string, args ...any)) {
	if e.Tag == "" {
		return // reported by package config
	}
	spec, err := envs.Lookup(e.Tag)
	if err != nil {
		report(path+".tag", "%v", err)
		return
	}
	faulty := false
	for key, value := range e.Options { // one by one, so that each is reported where it is set
		if err := envs.Decode(spec.NewOptions(), map[string]any{key: value}); err != nil {
			report(path+".options."+key, "environment %s: %v", e.Tag, err)
			faulty = true
		}
	}
	if faulty {
		return
	}
	env, err := spec.Make(e.Options)
	if err == nil {
		err = errors.Join(env.Reset(ctx, seed), env.Close())
	}
	if err != nil {
		report(path+".options", "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
