package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/nearest"
	"gyre/internal/table"
	"gyre/orchestrate/loop/advantage"
	"gyre/orchestrate/study/laboratory"
)

func estimatorCommand() *cli.Command {
	return &cli.Command{
		Name: "estimator", Usage: "measure advantage estimators in small games",
		Subcommands: []*cli.Command{{
			Name: "check", Usage: "bias and noise of advantage estimators", ArgsUsage: "[NAME ...]",
			Flags: []cli.Flag{jsonFlag(),
				integer("group-size", 4, 2, 64, "`N` episodes of each start"),
				atLeast(400, "samples", 10000, "draw `N` batches where more are possible"),
				seedFlag(), text("figure", "draw the results into `FILE`.png"), dpiFlag()},
			Action: checkEstimators,
		}},
	}
}

func checkEstimators(c *cli.Context) error {
	var estimators []advantage.Estimator
	var known []string
	for _, e := range advantage.Estimators {
		known = append(known, e.Name)
	}
	for _, name := range c.Args().Slice() {
		e := advantage.Find(name)
		if e == nil {
			return Usagef("there is no advantage estimator %q%s: expected %s", name, nearest.Hint(name, known),
				strings.Join(known, ", "))
		}
		estimators = append(estimators, *e)
	}
	if len(estimators) == 0 {
		estimators = advantage.Estimators
	}
	reports, err := laboratory.Check(c.Context, estimators, laboratory.Options{Size: c.Int("group-size"),
		Samples: c.Int("samples"), Seed: c.Uint64("seed")})
	if err != nil {
		return err
	}
	if err := showEstimators(c, reports); err != nil {
		return err
	}
	broken := 0
	for _, r := range reports {
		if why := r.Broken(); why != "" {
			broken++
			fmt.Fprintf(c.App.ErrWriter, "%s %s\n", r.Name, why)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d of %d estimators are not what they claim to be", broken, len(reports))
	}
	return nil
}

func showEstimators(c *cli.Context, reports []laboratory.Report) error {
	if path := c.String("figure"); path != "" {
		if err := laboratory.Figure(reports).Save(path, c.Int("dpi")); err != nil {
			return err
		}
	}
	if c.Bool("json") {
		return laboratory.Every(reports).WriteJSON(c.App.Writer)
	}
	if len(reports) == 1 {
		r := reports[0]
		if err := printf(c, "%s claims to be %s, and %s before it is divided or whitened:\n%s.\n\n", r.Name,
			r.Claim.Whole, r.Claim.Linear, r.Claim.Why); err != nil {
			return err
		}
		return laboratory.Every(reports).Write(c.App.Writer)
	}
	for _, part := range []struct {
		title string
		table *table.Table
	}{
		{"Bias in % of the true gradient, beside a common factor: in each game", laboratory.ByGame(reports)},
		{"\nIn the game stop: noise per episode, and what the bias becomes (groups of 8, 5\n" +
			"turns, discount 0.9, λ 0.9 with a critic of zeros, token-mean,\n" +
			"seq-mean-token-mean, 4 updates old, and then with ratios by sequence)", laboratory.ByCondition(reports)},
	} {
		if err := printf(c, "%s\n", part.title); err != nil {
			return err
		}
		if err := part.table.Write(c.App.Writer); err != nil {
			return err
		}
	}
	return nil
}
