package cli

import (
	"github.com/urfave/cli/v2"

	"gyre/torch"
)

// placementFlags say what computes the model.
func placementFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "device", Value: "cpu", Usage: "compute on `NAME`: cpu, cuda, cuda:N or aten"},
		&cli.StringFlag{Name: "dtype", Value: string(torch.ComputeAuto), Usage: "in `TYPE`: auto, float32 or bfloat16"},
	}
}

func placementOf(c *cli.Context) (torch.Placement, error) {
	p := torch.Placement{Device: c.String("device"), Compute: torch.Compute(c.String("dtype"))}
	if err := p.Check(); err != nil {
		return p, Usagef("--device, --dtype: %w", err)
	}
	return p, nil
}
