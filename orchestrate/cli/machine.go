package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/experiment"
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

// openThreads fixes the number of threads of a command that has --threads.
func openThreads(c *cli.Context, on torch.Placement) error {
	n := c.Int("threads")
	if n < 0 {
		return Usagef("--threads is %d, expected 0 (one per core) or more", n)
	}
	_, err := experiment.OpenMachine(n, on, func(format string, args ...any) {
		fmt.Fprintf(c.App.ErrWriter, "%s %s\n", paint(c.App.ErrWriter, yellow, "warning:"), fmt.Sprintf(format, args...))
	})
	return err
}
