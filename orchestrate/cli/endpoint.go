package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/endpoint"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/evaluation"
)

// checkEndpoint sees that the flags about a server come with one, and that a width is one.
func checkEndpoint(c *cli.Context) error {
	if w := c.Float64("until-width"); w < 0 || w > 100 {
		return Usagef("--until-width %v, expected 0 to 100 percentage points", w)
	}
	if _, _, err := pricesOf(c); err != nil {
		return err
	}
	if c.String("endpoint") != "" {
		return excludes(c, "endpoint", "the server plays, with the model that it has", "checkpoint", "adapter", "ranks",
			"dry-run")
	}
	for _, name := range []string{"served-model", "endpoint-model", "key-env", "concurrency", "patience", "prices"} {
		if c.IsSet(name) {
			return Usagef("--%s is about a server: name it with --endpoint URL", name)
		}
	}
	return nil
}

// pricesOf reads --prices.
func pricesOf(c *cli.Context) (p endpoint.Prices, given bool, err error) {
	word := c.String("prices")
	if word == "" {
		return p, false, nil
	}
	in, out, two := strings.Cut(word, ",")
	p.Prompt, err = strconv.ParseFloat(in, 64)
	if err == nil && two {
		p.Completion, err = strconv.ParseFloat(out, 64)
	}
	if err != nil || !two || p.Prompt < 0 || p.Completion < 0 {
		return p, false, Usagef("--prices %q, expected two numbers such as 0.15,0.6", word)
	}
	return p, true, nil
}

// contenders are the policies of the command line, as they are played: those of checkpoints by this process's engine,
// or the one of a server. Ranks keep nothing: their folders may differ.
func contenders(c *cli.Context, cfg *config.Config, list []evaluated, world *ranks.World, console *metrics.Console) (
	out []evaluation.Contender, keep evaluation.Keep, err error) {
	keep = evaluation.Keep{Dir: c.String("keep"), Fresh: c.Bool("fresh")}
	program := ""
	if world.Size() > 1 {
		keep.Dir = ""
	}
	if keep.Dir != "" {
		if program, err = build(); err != nil {
			return nil, keep, err
		}
	}
	if c.String("endpoint") != "" {
		one, err := served(c, cfg, keep, program, console)
		return []evaluation.Contender{one}, keep, err
	}
	for _, e := range list {
		one := evaluation.Contender{Name: e.name}
		one.Open = func(ctx context.Context) (*session.Evaluator, error) {
			return session.OpenEvaluator(ctx, cfg, e.policy, world, console)
		}
		weights, tokenizer, err := fingerprint(cfg, e.policy)
		if err != nil && len(list) > 1 { // before others are played; one alone is reported when it is opened
			return nil, keep, openingError(fmt.Errorf("%s: %w", e.name, err))
		}
		if one.Tokenizer = tokenizer; err == nil && keep.Dir != "" {
			one.Identity, err = evaluation.Identify(cfg, program, weights, tokenizer)
			if err != nil {
				return nil, keep, err
			}
		}
		out = append(out, one)
	}
	return out, keep, nil
}

// fingerprint tells the policies apart that are played, and says where the tokenizer is.
func fingerprint(cfg *config.Config, policy session.Evaluated) (weights, tokenizer string, err error) {
	from, _, err := checkpoint.Find(cmp.Or(policy.Checkpoint, cfg.Model.Path), rundir.CheckpointPrefix)
	if err != nil {
		return "", cfg.Model.Path, err
	}
	tokenizer = experiment.TokenizerOf(from, cfg.Model.Path)
	base, err := checkpoint.BaseOf(from.Actor) // an adapter's
	for _, dir := range []string{from.Actor, policy.Adapter, base} {
		if dir == "" || err != nil {
			continue
		}
		var part string
		part, err = checkpoint.Fingerprint(dir)
		weights += part
	}
	return weights, tokenizer, err
}

// served is the policy of a server.
func served(c *cli.Context, cfg *config.Config, keep evaluation.Keep, program string, console *metrics.Console) (
	one evaluation.Contender, err error) {
	where := endpoint.Config{URL: c.String("endpoint"),
		Model:       cmp.Or(c.String("served-model"), c.String("endpoint-model")),
		Concurrency: c.Int("concurrency"), Timeout: time.Duration(c.Int("patience")) * time.Second}
	if name := c.String("key-env"); name != "" {
		if where.Key = os.Getenv(name); where.Key == "" {
			return one, Usagef("--key-env %s: the variable is not set", name)
		}
	}
	one.Name, one.Tokenizer = cmp.Or(where.Model, where.URL), cfg.Model.Path
	if keep.Dir != "" {
		tokenizer, err := checkpoint.Fingerprint(cfg.Model.Path)
		if err != nil {
			return one, openingError(err)
		}
		one.Identity, err = evaluation.Identify(cfg, program, where.URL+" "+where.Model+" "+tokenizer, cfg.Model.Path)
		if err != nil {
			return one, err
		}
		where.Journal = filepath.Join(keep.Dir, one.Identity.Conversations()+".replies.jsonl")
		if keep.Fresh {
			if err := os.Remove(where.Journal); err != nil && !os.IsNotExist(err) {
				return one, err
			}
		}
	}
	one.Open = func(ctx context.Context) (*session.Evaluator, error) {
		return session.OpenEndpoint(ctx, cfg, where, console)
	}
	return one, nil
}
