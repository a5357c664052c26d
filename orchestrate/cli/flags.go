package cli

import (
	"github.com/urfave/cli/v2"

	"gyre/internal/figure"
)

// Flags that several verbs have, with one meaning each.

// jsonFlag prints for programs what is otherwise for people.
func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "print JSON instead of tables"} }

// inputFlag is where the rows of a verb come from that answers row by row.
func inputFlag() cli.Flag {
	return &cli.StringFlag{Name: "input", Usage: "read rows from `FILE` instead of stdin"}
}

// dryRunFlag checks what a run would start with.
func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "check everything, print it and the memory it needs, stop"}
}

// resumeFlag continues a run.
func resumeFlag() cli.Flag {
	return &cli.BoolFlag{Name: "resume", Usage: "continue from the newest checkpoint, or start"}
}

// dpiFlag is the resolution of PNG files.
func dpiFlag() cli.Flag {
	return &cli.IntFlag{Name: "dpi", Value: figure.PrintDPI, Usage: "resolution of the pictures",
		Action: func(_ *cli.Context, n int) error {
			if n < 30 || n > 1200 {
				return Usagef("--dpi is %d, expected 30 to 1200", n)
			}
			return nil
		}}
}
