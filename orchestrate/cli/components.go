package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/figure"
	"gyre/internal/table"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/offline"
)

func componentsCommand() *cli.Command {
	figure := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "figure", Usage: "PNG `FILE`, or none; in plots/ if left out"},
			&cli.StringFlag{Name: "csv", Usage: "write the table to `FILE`"},
			jsonFlag(),
			dpiFlag(),
		}
	}
	return &cli.Command{
		Name:  "components",
		Usage: "read saved gradients, rewards and log-probs",
		Subcommands: []*cli.Command{
			{
				Name: "keys", Usage: "list the arrays of a file of gradients", ArgsUsage: "FILE.npz",
				Flags:  []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "all of them, not the first and last ten"}},
				Action: componentKeys,
			},
			{
				Name: "layers", Usage: "cosines and norms by layer", ArgsUsage: "FILE.npz",
				Description: "gyre components layers runs/r/gradient_analysis_d/gradients_step_0.npz",
				Flags:       figure(), Action: componentLayers,
			},
			{
				Name: "parameter", Usage: "cosines of one parameter over training", ArgsUsage: "DIR",
				Description: "gyre components parameter runs/r/gradient_analysis_d --name lm_head.weight\n\n" +
					"The name all stands for all parameters together.",
				Flags: append(figure(),
					&cli.StringFlag{Name: "name", Required: true, Usage: "as keys lists it, or all"}),
				Action: componentParameter,
			},
			{
				Name: "cosines", Usage: "logged cosines over training, with their bands", ArgsUsage: "RUN",
				Description: "gyre components cosines runs/components-demo",
				Flags:       figure(), Action: componentCosines,
			},
			{
				Name: "rewards", Usage: "trends of a reward history", ArgsUsage: "FILE|DIR|RUN",
				Description: "gyre components rewards runs/r/reward_tracking_math500/all_rewards.json",
				Flags:       figure(), Action: componentRewards,
			},
			{
				Name: "perplexity", Usage: "what the first tokens of replies tell about them",
				ArgsUsage: "DIR|FILE ...",
				Description: "gyre components perplexity runs/r/ppl_tracking_math500 --k 5 --k 20\n\n" +
					"Reads validation_step_N.json files: mean log-prob and perplexity of the first\n" +
					"k tokens, AUROC against the reward averaged over prompts, correlation, and\n" +
					"what stopping the worst replies would save.",
				Flags: append(figure(),
					&cli.IntSliceFlag{Name: "k", Usage: "tokens of a prefix; several may be given (5 10 20 40 80)"},
					&cli.IntFlag{Name: "fixed", Value: 20, Usage: "tokens after which replies would be stopped"}),
				Action: componentPerplexity,
			},
		},
	}
}

// oneArgument is the one argument of a command.
func oneArgument(c *cli.Context) (string, error) {
	if c.NArg() != 1 {
		return "", Usagef("%s needs %s, got %d arguments", c.Command.HelpName, c.Command.ArgsUsage, c.NArg())
	}
	return c.Args().First(), nil
}

// gradientsFile opens the file of gradients that is a command's one argument.
func gradientsFile(c *cli.Context) (*offline.Gradients, error) {
	path, err := oneArgument(c)
	if err != nil {
		return nil, err
	}
	g, err := offline.OpenGradients(path)
	return g, openingError(err)
}

func componentKeys(c *cli.Context) error {
	g, err := gradientsFile(c)
	if err != nil {
		return err
	}
	defer g.Close()
	keys := g.Keys()
	fmt.Fprintf(c.App.Writer, "%s: %d arrays; components %s; %d parameters\n", c.Args().First(), len(keys),
		strings.Join(g.Components, ", "), len(g.Parameters))
	const shown = 10
	for i, key := range keys {
		if c.Bool("all") || len(keys) <= 2*shown || i < shown || i >= len(keys)-shown {
			fmt.Fprintln(c.App.Writer, key)
		} else if i == shown {
			fmt.Fprintln(c.App.Writer, "…")
		}
	}
	return nil
}

func componentLayers(c *cli.Context) error {
	g, err := gradientsFile(c)
	if err != nil {
		return err
	}
	defer g.Close()
	layers, err := g.Layers()
	if err != nil {
		return err
	}
	name, title := fmt.Sprintf("layer_similarity_step_%d.png", max(g.Step, 0)),
		fmt.Sprintf("Component gradients by layer, step %d", g.Step)
	return present(c, offline.LayersTable(g.Components, layers),
		offline.LayersFigure(name, title, g.Components, layers))
}

func componentParameter(c *cli.Context) error {
	dir, err := oneArgument(c)
	if err != nil {
		return err
	}
	s, err := offline.OverTime(dir, c.String("name"))
	if err != nil {
		return openingError(err)
	}
	for _, why := range s.Skipped {
		fmt.Fprintf(c.App.ErrWriter, "%s skipped: %s\n", paint(c.App.ErrWriter, yellow, "warning:"), why)
	}
	return present(c, s.Table(), s.Figure("parameter_similarity_over_time.png",
		"Component gradients of "+c.String("name")))
}

func componentCosines(c *cli.Context) error {
	name, err := oneArgument(c)
	if err != nil {
		return err
	}
	run, err := rundir.Read(name)
	if err != nil {
		return openingError(err)
	}
	s, err := offline.Logged(run)
	if err != nil {
		return err
	}
	return present(c, s.Table(), s.Figure("component_cosines.png", run.Name+": component gradients"))
}

func componentRewards(c *cli.Context) error {
	path, err := oneArgument(c)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		found, _ := filepath.Glob(filepath.Join(path, "reward_tracking_*", tracking.HistoryFile))
		if own := filepath.Join(path, tracking.HistoryFile); exists(own) {
			found = append(found, own)
		}
		if found == nil {
			return fmt.Errorf("%s has no %s, nor a folder reward_tracking_DATA with one; components.tracking writes "+
				"them", path, tracking.HistoryFile)
		}
		path = found[0]
	}
	history, err := offline.ReadHistory(path)
	if err != nil {
		return openingError(err)
	}
	return present(c, history.Table(), history.Figure("reward_trends.png"))
}

func componentPerplexity(c *cli.Context) error {
	if c.NArg() == 0 {
		return Usagef("%s needs %s", c.Command.HelpName, c.Command.ArgsUsage)
	}
	ks := c.IntSlice("k")
	if len(ks) == 0 {
		ks = []int{5, 10, 20, 40, 80}
	}
	if k := slices.Min(append(ks, c.Int("fixed"))); k < 1 {
		return Usagef("--k and --fixed are numbers of tokens: expected at least 1, got %d", k)
	}
	replies, err := offline.ReadReplies(c.Args().Slice())
	if err != nil {
		return openingError(err)
	}
	list := offline.Prefixes(replies, ks)
	return present(c, offline.PrefixTable(list), offline.PrefixFigure("perplexity.png", replies, list, c.Int("fixed")))
}

// present prints a table, or writes it as CSV, and draws its figure, as plots/NAME unless --figure says otherwise.
func present(c *cli.Context, t *table.Table, f figure.Figure) error {
	var err error
	if path := c.String("csv"); path != "" {
		err = atomicfile.Write(path, t.WriteCSV)
	} else {
		err = show(c, t)
	}
	path := c.String("figure")
	if err != nil || path == "none" {
		return err
	}
	if path == "" {
		path = filepath.Join("plots", f.Name)
	}
	if err := atomicfile.Write(path, func(w io.Writer) error { return f.PNG(w, c.Int("dpi")) }); err != nil {
		return err
	}
	fmt.Fprintln(c.App.ErrWriter, path)
	return nil
}
