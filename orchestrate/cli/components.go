package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/loop/tracking"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/offline"
	"gyre/orchestrate/study/plot"
)

func componentsCommand() *cli.Command {
	figure := func() []cli.Flag {
		return []cli.Flag{
			&cli.StringFlag{Name: "figure", Usage: "PNG `FILE`, or none; in plots/ if left out"},
			&cli.StringFlag{Name: "csv", Usage: "write the table to `FILE`"},
			&cli.BoolFlag{Name: "json", Usage: "print the table as JSON"},
			&cli.IntFlag{Name: "dpi", Value: plot.PrintDPI, Usage: "of the figure"},
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
				Name: "perplexity", Usage: "what the first tokens of replies tell about them", ArgsUsage: "DIR|FILE ...",
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
	return offline.OpenGradients(path)
}

func componentKeys(c *cli.Context) error {
	g, err := gradientsFile(c)
	if err != nil {
		return err
	}
	defer g.Close()
	keys := g.Keys()
	fmt.Fprintf(c.App.Writer, "%s: %d arrays; components %s; %d parameters\n", c.Args().First(), len(keys), strings.Join(g.Components, ", "), len(g.Parameters))
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
	header, rows := offline.LayersTable(g.Components, layers)
	return present(c, header, rows, offline.LayersFigure("layers", fmt.Sprintf("Component gradients by layer, step %d", g.Step), g.Components, layers),
		fmt.Sprintf("layer_similarity_step_%d.png", max(g.Step, 0)))
}

func componentParameter(c *cli.Context) error {
	dir, err := oneArgument(c)
	if err != nil {
		return err
	}
	s, err := offline.OverTime(dir, c.String("name"))
	if err != nil {
		return err
	}
	for _, why := range s.Skipped {
		fmt.Fprintf(c.App.ErrWriter, "%s skipped: %s\n", paint(c.App.ErrWriter, yellow, "warning:"), why)
	}
	header, rows := s.Table()
	return present(c, header, rows, s.Figure("parameter", "Component gradients of "+c.String("name")), "parameter_similarity_over_time.png")
}

func componentCosines(c *cli.Context) error {
	name, err := oneArgument(c)
	if err != nil {
		return err
	}
	run, err := rundir.Read(name)
	if err != nil {
		return err
	}
	s, err := offline.Logged(run)
	if err != nil {
		return err
	}
	header, rows := s.Table()
	return present(c, header, rows, s.Figure("cosines", run.Name+": component gradients"), "component_cosines.png")
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
			return fmt.Errorf("%s has no %s, nor a folder reward_tracking_DATA with one; components.tracking writes them", path, tracking.HistoryFile)
		}
		path = found[0]
	}
	history, err := offline.ReadHistory(path)
	if err != nil {
		return err
	}
	header, rows := history.Table()
	return present(c, header, rows, history.Figure("rewards"), "reward_trends.png")
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
		return err
	}
	list := offline.Prefixes(replies, ks)
	header, rows := offline.PrefixTable(list)
	return present(c, header, rows, offline.PrefixFigure("perplexity", replies, list, c.Int("fixed")), "perplexity.png")
}

// present prints a table, or writes it as CSV, and draws its figure, as plots/NAME unless --figure says otherwise. Values that are not defined are "-", null or empty.
func present(c *cli.Context, header []string, rows [][]any, picture plot.Picture, name string) error {
	if n := c.Int("dpi"); n < 30 || n > 1200 {
		return Usagef("--dpi is %d, expected 30 to 1200", n)
	}
	var err error
	switch {
	case c.String("csv") != "":
		err = atomicfile.Write(c.String("csv"), func(w io.Writer) error { return writeCSV(w, header, rows) })
	case c.Bool("json"):
		err = writeObjects(c.App.Writer, header, rows)
	default:
		err = writeTable(c.App.Writer, header, rows)
	}
	figure := c.String("figure")
	if err != nil || figure == "none" {
		return err
	}
	if figure == "" {
		figure = filepath.Join("plots", name)
	}
	if err := atomicfile.Write(figure, func(w io.Writer) error { return picture.Render(w, c.Int("dpi")) }); err != nil {
		return err
	}
	fmt.Fprintln(c.App.ErrWriter, figure)
	return nil
}

func undefined(v any) bool { x, is := v.(float64); return is && math.IsNaN(x) }

func writeTable(w io.Writer, header []string, rows [][]any) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, strings.Join(header, "\t")+"\t")
	for _, row := range rows {
		for _, v := range row {
			switch x := v.(type) {
			case float64:
				if math.IsNaN(x) {
					fmt.Fprint(table, "-\t")
				} else {
					fmt.Fprintf(table, "%.4g\t", x)
				}
			default:
				fmt.Fprintf(table, "%v\t", x)
			}
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

func writeCSV(w io.Writer, header []string, rows [][]any) error {
	out := csv.NewWriter(w)
	if err := out.Write(header); err != nil {
		return err
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, v := range row {
			if !undefined(v) {
				cells[i] = fmt.Sprint(v)
			}
		}
		if err := out.Write(cells); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// writeObjects writes one JSON object per row, keys in the order of the columns.
func writeObjects(w io.Writer, header []string, rows [][]any) error {
	for _, row := range rows {
		line := []byte{'{'}
		for i, v := range row {
			if undefined(v) {
				v = nil
			}
			key, err := json.Marshal(header[i])
			if err != nil {
				return err
			}
			value, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if i > 0 {
				line = append(line, ',')
			}
			line = append(append(append(line, key...), ':'), value...)
		}
		if _, err := fmt.Fprintf(w, "%s}\n", line); err != nil {
			return err
		}
	}
	return nil
}
