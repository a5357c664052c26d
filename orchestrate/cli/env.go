package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/urfave/cli/v2"

	"gyre/envs"
	_ "gyre/envs/builtin"
	"gyre/internal/quote"
	"gyre/internal/table"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
)

func envCommand() *cli.Command {
	seed := func() cli.Flag { return &cli.Int64Flag{Name: "seed", Value: 123, Usage: "episode seed"} }
	return &cli.Command{
		Name:  "env",
		Usage: "list environments, show their options, play one in the terminal",
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the tags that [[envs]] can name",
				Flags: []cli.Flag{jsonFlag()},
				Action: func(c *cli.Context) error {
					if c.Bool("json") {
						return listEnvsJSON(c.App.Writer)
					}
					return listEnvs(c.App.Writer)
				},
			},
			{
				Name: "info", Usage: "options, rules and an example state of a tag", ArgsUsage: "TAG [key=value…]",
				Flags: []cli.Flag{seed()},
				Action: func(c *cli.Context) error {
					spec, env, err := openEnv(c)
					if err != nil {
						return err
					}
					defer env.Close()
					return showEnv(c.Context, c.App.Writer, spec, env, c.Int64("seed"))
				},
			},
			{
				Name: "play", Usage: "play a tag: one line of actions at a time on stdin, q quits",
				ArgsUsage: "TAG [key=value…]",
				Description: "gyre env play sokoban --seed 7\n" +
					"echo 'Up || Left' | gyre env play sokoban size=8x8 boxes=2\n" +
					"gyre env play frozenlake --random --episodes 500 success_rate=1.0",
				Flags: []cli.Flag{
					seed(),
					&cli.BoolFlag{Name: "expert", Aliases: []string{"solve"},
						Usage: "print the expert's actions instead"},
					&cli.BoolFlag{Name: "random", Usage: "play at random and print the success rate"},
					&cli.IntFlag{Name: "episodes", Value: 500, Usage: "play `N` at random, or of --expert"},
					&cli.IntFlag{Name: "actions", Usage: "at most `N`; 0 = as many as the tag has"},
				},
				Action: playEnv,
			},
			{
				Name: "overlap", Usage: "count held-out first states that training also begins with",
				ArgsUsage:   "CONFIG [key=value…]",
				Description: "gyre env overlap configs/demo.toml",
				Flags: []cli.Flag{
					jsonFlag(),
					&cli.BoolFlag{Name: "sft", Value: true,
						Usage: "count the demonstrations of [sft] (--sft=false: of none)"},
				},
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
	fmt.Fprintf(c.App.Writer,
		"%d of %d held-out first states (%d different ones) occur among the %d of training and the %d of "+
			"demonstrations (%d different ones)\n",
		o.Shared, o.HeldOut, o.Different, o.Training, o.Demonstrations, o.Distinct)
	return nil
}

// openEnv makes the environment that the arguments TAG key=value… describe.
func openEnv(c *cli.Context) (envs.Spec, envs.Env, error) {
	if c.NArg() == 0 {
		return envs.Spec{}, nil, Usagef("%s needs a tag; `gyre env list` names them", c.Command.HelpName)
	}
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
		options[key] = optionValue(text)
	}
	spec.CountTokens = chat.CountTokens
	env, err := spec.Make(options)
	if err != nil {
		return spec, nil, Usagef("%w", err)
	}
	return spec, env, nil
}

// optionValue reads text as a TOML value, and as a plain string where it is none.
func optionValue(text string) any {
	var parsed struct{ V any }
	if _, err := toml.Decode("V = "+text, &parsed); err != nil {
		return text
	}
	return parsed.V
}

func listEnvs(w io.Writer) error {
	t := table.New("tag", "type", "actions", "description")
	for _, s := range envs.List() {
		t.Add(s.Tag, fmt.Sprint(s.Type), s.MaxActions, s.Doc)
	}
	return t.Write(w)
}

func listEnvsJSON(w io.Writer) error {
	type row struct {
		Tag           string         `json:"tag"`
		Type          string         `json:"type"`
		Doc           string         `json:"doc"`
		MaxActions    int            `json:"max_actions"`
		MaxReplyWords int            `json:"max_reply_words"`
		Options       map[string]any `json:"options"`
	}
	rows := []row{}
	for _, s := range envs.List() {
		options := map[string]any{}
		for _, o := range envs.Options(s.NewOptions()) {
			options[o.Name] = o.Default
		}
		rows = append(rows, row{s.Tag, s.Type, s.Doc, s.MaxActions, s.MaxReplyWords, options})
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(rows)
}

func showEnv(ctx context.Context, w io.Writer, spec envs.Spec, env envs.Env, seed int64) error {
	start, err := env.Reset(ctx, seed, 0)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n%s\ntype %s; actions per episode: %d; words per reply: about %d\n\n",
		spec.Tag, spec.Doc, spec.Type, spec.MaxActions, spec.MaxReplyWords)
	t := table.New("option", "default", "meaning")
	for _, o := range envs.Options(spec.NewOptions()) {
		value, err := json.Marshal(o.Default)
		if err != nil {
			return fmt.Errorf("default of option %s: %w", o.Name, err)
		}
		text := string(value)
		if text == "null" {
			text = "[]"
		}
		also := ""
		if len(o.Aliases) > 0 {
			also = " (also " + strings.Join(o.Aliases, ", ") + ")"
		}
		t.Add(o.Name, text, o.Doc+also)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	actions := "any text"
	if list := start.Actions; list != nil {
		actions = strings.Join(list, ", ")
	}
	_, err = fmt.Fprintf(w, "\nInstruction\n%s\n\nActions\n%s\n\nState of seed %d\n%s\n",
		quote.Lines(start.Instruction), quote.Lines(actions), seed, shown(env))
	return err
}
