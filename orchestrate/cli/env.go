package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	gopretty "github.com/jedib0t/go-pretty/v6/text"
	"github.com/urfave/cli/v2"

	"gyre/envs"
	_ "gyre/envs/builtin"
	"gyre/internal/quote"
	"gyre/internal/settings"
	"gyre/internal/table"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
)

func envCommand() *cli.Command {
	seed := func() cli.Flag { return &cli.Int64Flag{Name: "seed", Value: 123, Usage: "episode seed"} }
	return &cli.Command{
		Name: "env", Usage: "list environments, show their options, play one in the terminal",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the tags that [[envs]] can name",
				Flags: []cli.Flag{jsonFlag()}, Action: listEnvs,
			},
			{
				Name: "info", Usage: "options, rules and an example state of a tag", ArgsUsage: "TAG [key=value ...]",
				Flags: []cli.Flag{seed()}, Action: showEnv,
			},
			{
				Name: "play", Usage: "play a tag: one line of actions at a time on stdin, q quits",
				ArgsUsage: "TAG [key=value ...]",
				Flags: []cli.Flag{
					seed(),
					&cli.BoolFlag{Name: "expert", Aliases: []string{"solve"}, DisableDefaultText: true,
						Usage: "print the expert's actions instead"},
					toggle("random", "play at random and print the success rate"),
					atLeast(1, "episodes", 500, "play `N` at random, or of --expert"),
					atLeast(0, "actions", 0, "at most `N`; 0 = as many as the tag has"),
				},
				Action: playEnv,
			},
			{
				Name: "overlap", Usage: "count held-out first states that training also begins with",
				ArgsUsage: "CONFIG [key=value ...]",
				Flags: []cli.Flag{jsonFlag(), &cli.BoolFlag{Name: "sft", Value: true, DisableDefaultText: true,
					Usage: "count the demonstrations of [sft] (--sft=false: of none)"}},
				Action: countOverlap,
			},
		},
	}
}

func countOverlap(c *cli.Context) error {
	cfg, err := loadConfig(c, playing)
	if err != nil {
		return err
	}
	demonstrations := 0
	if c.Bool("sft") && cfg.SFT.Data == "" {
		demonstrations = cfg.SFT.Episodes + cfg.SFT.ValidationEpisodes
	}
	o, err := rollout.CountOverlap(c.Context, cfg, demonstrations)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(o)
	}
	return printf(c, "%d of %d held-out first states (%d different ones) occur among the %d of training and the %d of "+
		"demonstrations (%d different ones)\n", o.Shared, o.HeldOut, o.Different, o.Training, o.Demonstrations, o.Distinct)
}

// openEnv makes the environment that the arguments TAG key=value… describe.
func openEnv(c *cli.Context) (envs.Spec, envs.Env, error) {
	spec, err := envs.Lookup(c.Args().First())
	if err != nil {
		return spec, nil, Usagef("%w", err)
	}
	options := map[string]any{}
	for _, arg := range c.Args().Tail() {
		key, text, ok := strings.Cut(arg, "=")
		if !ok {
			return spec, nil, Usagef("expected key=value after the tag, got %q; `gyre env info %s` lists the keys", arg,
				spec.Tag)
		}
		options[key] = settings.Value(text)
	}
	spec.CountTokens = chat.CountTokens
	env, err := spec.Make(options)
	if err != nil {
		return spec, nil, Usagef("%w", err)
	}
	return spec, env, nil
}

func listEnvs(c *cli.Context) error {
	t, rows := table.New("tag", "type", "actions", "description"), []any{}
	for _, s := range envs.List() {
		t.Add(s.Tag, fmt.Sprint(s.Type), s.MaxActions, s.Doc)
		options := map[string]any{}
		for _, o := range envs.Options(s.NewOptions()) {
			options[o.Name] = o.Default
		}
		rows = append(rows, map[string]any{"tag": s.Tag, "type": s.Type, "doc": s.Doc, "max_actions": s.MaxActions,
			"max_reply_words": s.MaxReplyWords, "options": options})
	}
	if c.Bool("json") {
		return printJSON(c, rows)
	}
	return t.Write(c.App.Writer)
}

func showEnv(c *cli.Context) error {
	spec, err := envs.Lookup(c.Args().First())
	if err != nil {
		return Usagef("%w", err)
	}
	if err := showOptions(c, spec); err != nil {
		return err
	}
	_, env, err := openEnv(c)
	if err != nil && c.NArg() == 1 {
		return printf(c, "\n%s\n", wrapped(fmt.Sprintf("How it begins depends on its options: %v", err)))
	}
	if err != nil {
		return err
	}
	defer env.Close()
	return showBeginning(c, spec, env)
}

// showOptions prints what an environment is and what it can be told.
func showOptions(c *cli.Context, spec envs.Spec) error {
	w := c.App.Writer
	fmt.Fprintf(w, "%s\n%s\ntype %s; actions per episode: %d; words per reply: about %d\n\n",
		spec.Tag, wrapped(spec.Doc), spec.Type, spec.MaxActions, spec.MaxReplyWords)
	t := table.New("option", "default", "meaning")
	for _, o := range envs.Options(spec.NewOptions()) {
		value, err := json.Marshal(o.Default)
		if err != nil {
			return fmt.Errorf("default of option %s: %w", o.Name, err)
		}
		if string(value) == "null" {
			value = []byte("[]")
		}
		doc := o.Doc
		if len(o.Aliases) > 0 {
			doc += " (also " + strings.Join(o.Aliases, ", ") + ")"
		}
		t.Add(o.Name, string(value), doc)
	}
	return t.Write(w)
}

func wrapped(line string) string { return gopretty.WrapSoft(line, 80) }

// showBeginning prints the rules and the first observation of a seed.
func showBeginning(c *cli.Context, spec envs.Spec, env envs.Env) error {
	seed := c.Int64("seed")
	start, err := env.Reset(c.Context, seed, 0)
	if err != nil {
		return err
	}
	actions := "any text"
	if start.Actions != nil {
		actions = strings.Join(start.Actions, ", ")
	}
	return printf(c, "\nInstruction\n%s\n\nActions\n%s\n\nState of seed %d\n%s\n",
		quote.Lines(start.Instruction), quote.Lines(actions), seed, shown(env))
}
