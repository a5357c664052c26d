package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
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
				Flags:       figure(), Action: ofOne(componentLayers),
			},
			{
				Name: "parameter", Usage: "cosines of one parameter over training", ArgsUsage: "DIR",
				Description: "gyre components parameter runs/r/gradient_analysis_d --name lm_head.weight\n\n" +
					"The name all stands for all parameters together.",
				Flags: append(figure(),
					&cli.StringFlag{Name: "name", Required: true, Usage: "as keys lists it, or all"}),
				Action: ofOne(componentParameter),
			},
			{
				Name: "cosines", Usage: "logged cosines over training, with their bands", ArgsUsage: "RUN",
				Description: "gyre components cosines runs/components-demo",
				Flags:       figure(), Action: ofOne(componentCosines),
			},
			{
				Name: "rewards", Usage: "trends of a reward history", ArgsUsage: "FILE|DIR|RUN",
				Description: "gyre components rewards runs/r/reward_tracking_math500/all_rewards.json",
				Flags:       figure(), Action: ofOne(componentRewards),
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

func componentKeys(c *cli.Context) error {
	path, err := oneArgument(c)
	if err != nil {
		return err
	}
	g, err := offline.OpenGradients(path)
	if err != nil {
		return openingError(err)
	}
	defer g.Close()
	keys := g.Names
	fmt.Fprintf(c.App.Writer, "%s: %d arrays; components %s; %d parameters\n", path, len(keys),
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

// ofOne presents what is found in a command's one argument.
func ofOne(find func(c *cli.Context, path string) (offline.Result, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		path, err := oneArgument(c)
		if err != nil {
			return err
		}
		return present(c)(find(c, path))
	}
}

func componentLayers(_ *cli.Context, path string) (offline.Result, error) {
	return offline.Layers(path)
}

func componentParameter(c *cli.Context, dir string) (offline.Result, error) {
	return offline.Parameter(dir, c.String("name"))
}

func componentCosines(_ *cli.Context, name string) (offline.Result, error) {
	run, err := rundir.Read(name)
	if err != nil {
		return offline.Result{}, err
	}
	return offline.Logged(run)
}

func componentRewards(_ *cli.Context, path string) (offline.Result, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		found, _ := filepath.Glob(filepath.Join(path, "reward_tracking_*", tracking.HistoryFile))
		if own := filepath.Join(path, tracking.HistoryFile); exists(own) {
			found = append(found, own)
		}
		if found == nil {
			return offline.Result{}, fmt.Errorf("%s has no %s, nor a folder reward_tracking_DATA with one; "+
				"components.tracking writes them", path, tracking.HistoryFile)
		}
		path = found[0]
	}
	return offline.Rewards(path)
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
	return present(c)(offline.Perplexity(c.Args().Slice(), ks, c.Int("fixed")))
}

// present prints a result's table, or writes it as CSV, and draws its figure, as plots/NAME unless --figure says
// otherwise.
func present(c *cli.Context) func(offline.Result, error) error {
	return func(r offline.Result, err error) error {
		if err != nil {
			return openingError(err)
		}
		for _, why := range r.Skipped {
			fmt.Fprintf(c.App.ErrWriter, "%s skipped: %s\n", paint(c.App.ErrWriter, yellow, "warning:"), why)
		}
		if path := c.String("csv"); path != "" {
			err = atomicfile.Write(path, r.Table.WriteCSV)
		} else {
			err = show(c, r.Table)
		}
		path := c.String("figure")
		if err != nil || path == "none" {
			return err
		}
		if path == "" {
			path = filepath.Join("plots", r.Figure.Name)
		}
		if err := r.Figure.Save(path, c.Int("dpi")); err != nil {
			return err
		}
		fmt.Fprintln(c.App.ErrWriter, path)
		return nil
	}
}
