package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/compat/translate"
	"gyre/orchestrate/experiment"
)

func configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "configurations of other programs",
		Subcommands: []*cli.Command{{
			Name: "translate", Usage: "write RAGEN's or verl's settings as a configuration",
			ArgsUsage: "[key=value ...]",
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "config-name", Aliases: []string{"cn"},
					Usage: "start from RAGEN's task `NAME`: _2_sokoban"},
				text("yaml", "start from a resolved `FILE`"),
				text("config", "start from verl's `FILE`"),
				text("m", "`MODULE` of python -m: verl.trainer.main_ppo"),
				text("train-sh", "words of the first RAGEN's train.sh for `ENV`"),
				&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the TOML to `FILE`"},
			},
			Action: translateConfig,
		}},
	}
}

func translateConfig(c *cli.Context) error {
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
	result, err := translate.Words(append(words, c.Args().Slice()...), experiment.CheckEnvironments(c.Context))
	if err != nil {
		return Usagef("%w", err)
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
	if file != "" {
		return atomicfile.Write(file, func(w io.Writer) error { _, err := w.Write(result.Document); return err })
	}
	_, err = c.App.Writer.Write(result.Document)
	return err
}
