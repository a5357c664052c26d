package experiment

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gyre/envs"
	_ "gyre/envs/builtin" // configurations name any of them
	"gyre/envs/reward"
	"gyre/internal/dataset"
	"gyre/internal/settings"
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
)

// CheckEnvironments is the check of a configuration that makes one environment of every source and its first state,
// which checks tag and options: some, such as more boxes than a level has room for, only show then. The components of
// the reward are made, too, and their programs started. Validation sources
// that are data sets get the options with which they are played row by row.
func CheckEnvironments(ctx context.Context) func(*config.Config, func(key, format string, args ...any)) {
	return func(c *config.Config, report func(key, format string, args ...any)) {
		training := make([]*dataset.Set, len(c.Envs))
		for i, e := range c.Envs {
			training[i] = checkEnvironment(ctx, fmt.Sprintf("envs.%d", i), e, c.Run.EnvSeed, report)
		}
		sets, seed := slices.Clone(training), c.Validation.Seed
		validated := map[*dataset.Set]bool{}
		for i, e := range c.Validation.Envs {
			own := slices.IndexFunc(c.Envs, func(t config.Env) bool {
				return t.Tag == e.Tag && reflect.DeepEqual(t.Options, e.Options)
			})
			var set *dataset.Set
			if own >= 0 { // taken from the training source, which has just been checked
				set = training[own]
			} else {
				set = checkEnvironment(ctx, fmt.Sprintf("validation.envs.%d", i), e, c.Validation.Seed, report)
				sets = append(sets, set)
			}
			if validated[set] = true; set != nil {
				rowByRow(ctx, c, i, set, training, seed)
			}
			seed += int64(c.Validation.Envs[i].Groups)
		}
		checkRewards(ctx, c, report)
		for _, set := range sets {
			if set == nil {
				continue
			}
			note := c.NoteTraining
			if validated[set] {
				note = c.Note
			}
			note(set.Notes()...)
			if asksForNoForm(set, c.Rewards) {
				note(set.Path + ": no problem says where its answer goes, which the grader looks for in \\boxed{}, in " +
					"<answer></answer> and behind ####: set the option instruction (docs/stuck.md, section 2)")
			}
		}
	}
}

// checkRewards makes what judges replies, once, where an environment lets that judge them.
func checkRewards(ctx context.Context, c *config.Config, report func(key, format string, args ...any)) {
	if !slices.ContainsFunc(slices.Concat(c.Envs, c.Validation.Envs), func(e config.Env) bool {
		spec, err := envs.Lookup(e.Tag)
		return err == nil && spec.Graded
	}) {
		return
	}
	for i, r := range c.Rewards {
		if r.Name == "" {
			continue // reported by package config
		}
		if err := reward.Check(ctx, r.Name, r.Options); err != nil {
			report(fmt.Sprintf("rewards.%d", i), "%v", oneLine{err})
		}
	}
}

// checkEnvironment makes an environment. It returns the data set that it plays, if it does.
func checkEnvironment(ctx context.Context, path string, e config.Env, seed int64,
	report func(key, format string, args ...any)) *dataset.Set {
	if e.Tag == "" {
		return nil // reported by package config
	}
	spec, err := envs.Lookup(e.Tag)
	if err != nil {
		report(path+".tag", "%v", err)
		return nil
	}
	faulty := false
	settings.DecodeOptions(spec.NewOptions(), e.Options, func(key, format string, args ...any) { // each where it is set
		report(path+".options."+key, "environment %s: "+format, append([]any{e.Tag}, args...)...)
		faulty = true
	})
	if faulty {
		return nil
	}
	env, err := open(e)
	if err == nil {
		_, err = env.Reset(ctx, seed, 0)
		err = errors.Join(err, env.Close())
	}
	if err != nil {
		report(path+".options", "%v", oneLine{err})
		return nil
	}
	if player, is := env.(envs.DataSet); is {
		return player.Set()
	}
	return nil
}

// open makes the environment of a source.
func open(e config.Env) (envs.Env, error) {
	spec, err := envs.Lookup(e.Tag)
	if err != nil {
		return nil, err
	}
	spec.CountTokens = chat.CountTokens
	return spec.Make(e.Options)
}

// oneLine is an error without line breaks.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
