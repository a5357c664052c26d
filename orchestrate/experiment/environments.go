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
	"gyre/internal/settings"
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
)

// CheckEnvironments is the check of a configuration that makes one environment of every source and its first state,
// which checks tag and options: some, such as more boxes than a level has room for, only show then.
func CheckEnvironments(ctx context.Context) func(*config.Config, func(key, format string, args ...any)) {
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

func checkEnvironment(ctx context.Context, path string, e config.Env, seed int64,
	report func(key, format string, args ...any)) {
	if e.Tag == "" {
		return // reported by package config
	}
	spec, err := envs.Lookup(e.Tag)
	if err != nil {
		report(path+".tag", "%v", err)
		return
	}
	faulty := false
	settings.DecodeOptions(spec.NewOptions(), e.Options, func(key, format string, args ...any) { // each where it is set
		report(path+".options."+key, "environment %s: "+format, append([]any{e.Tag}, args...)...)
		faulty = true
	})
	if faulty {
		return
	}
	spec.CountTokens = chat.CountTokens
	env, err := spec.Make(e.Options)
	if err == nil {
		_, err = env.Reset(ctx, seed, 0)
		err = errors.Join(err, env.Close())
	}
	if err != nil {
		report(path+".options", "%v", oneLine{err})
	}
}

// oneLine is an error without line breaks.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }
