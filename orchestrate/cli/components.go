package cli

import (
	"cmp"
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
	figure := func(own ...cli.Flag) []cli.Flag {
		return append(own, text("figure", "PNG `FILE`, or none; in plots/ if left out"),
			text("csv", "write the table to `FILE`"), jsonFlag(), dpiFlag())
	}
	return &cli.Command{
		Name: "components", Usage: "read saved gradients, rewards and log-probs",
		Subcommands: []*cli.Command{
			{
				Name: "keys", Usage: "list the arrays of a file of gradients", ArgsUsage: "FILE.npz",
				Flags:  []cli.Flag{toggle("all", "all of them, not the first and last ten")},
				Action: componentKeys,
			},
			{
				Name: "layers", Usage: "cosines and norms by layer", ArgsUsage: "FILE.npz", Flags: figure(),
				Action: presented(func(_ *cli.Context, path string) (offline.Result, error) {
					return offline.Layers(path)
				}),
			},
			{
				Name: "parameter", Usage: "cosines of one parameter over training", ArgsUsage: "DIR",
				Flags: figure(required("name", "as keys lists it, or all")),
				Action: presented(func(c *cli.Context, dir string) (offline.Result, error) {
					return offline.Parameter(dir, c.String("name"))
				}),
			},
			{
				Name: "cosines", Usage: "logged cosines over training, with their bands", ArgsUsage: "RUN",
				Flags: figure(), Action: presented(componentCosines),
			},
			{
				Name: "rewards", Usage: "trends of a reward history", ArgsUsage: "FILE|DIR|RUN",
				Flags: figure(), Action: presented(componentRewards),
			},
			{
				Name: "perplexity", Usage: "what the first tokens of replies tell about them",
				ArgsUsage: "DIR|FILE ...",
				Flags: figure(
					&cli.IntSliceFlag{Name: "k", Usage: "tokens of a prefix; several may be given (5 10 20 40 80)"},
					atLeast(1, "fixed", 20, "tokens after which replies would be stopped")),
				Action: presented(componentPerplexity),
			},
		},
	}
}

func componentKeys(c *cli.Context) error {
	g, err := offline.OpenGradients(c.Args().First())
	if err != nil {
		return openingError(err)
	}
	defer g.Close()
	keys := g.Names
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
		if own := filepath.Join(path, tracking.HistoryFile); atomicfile.Exists(own) {
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

func componentPerplexity(c *cli.Context, _ string) (offline.Result, error) {
	ks := c.IntSlice("k")
	if len(ks) == 0 {
		ks = []int{5, 10, 20, 40, 80}
	}
	if k := slices.Min(ks); k < 1 {
		return offline.Result{}, Usagef("--k is %d, expected at least 1", k)
	}
	return offline.Perplexity(c.Args().Slice(), ks, c.Int("fixed"))
}

// presented prints the table of what is found in a command's first argument, or writes it as CSV, and draws its figure,
// as plots/NAME unless --figure says otherwise.
func presented(find func(c *cli.Context, path string) (offline.Result, error)) cli.ActionFunc {
	return func(c *cli.Context) error {
		r, err := find(c, c.Args().First())
		if err != nil {
			return openingError(err)
		}
		for _, why := range r.Skipped {
			warn(c, "skipped: "+why)
		}
		if path := c.String("csv"); path != "" {
			err = atomicfile.Write(path, r.Table.WriteCSV)
		} else {
			err = show(c, r.Table)
		}
		path := cmp.Or(c.String("figure"), filepath.Join("plots", r.Figure.Name))
		if err != nil || path == "none" {
			return err
		}
		if err := r.Figure.Save(path, c.Int("dpi")); err != nil {
			return err
		}
		fmt.Fprintln(c.App.ErrWriter, path)
		return nil
	}
}
