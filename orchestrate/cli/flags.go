package cli

import (
	"cmp"
	"fmt"
	"math"

	"github.com/urfave/cli/v2"

	"gyre/internal/figure"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/torch"
)

// Flags that several verbs have, with one meaning each.

func jsonFlag() cli.Flag  { return toggle("json", "print JSON instead of tables") }
func inputFlag() cli.Flag { return text("input", "read rows from `FILE` instead of stdin") }
func dpiFlag() cli.Flag {
	return integer("dpi", figure.PrintDPI, 30, 1200, "resolution of the pictures")
}
func forceFlag() cli.Flag { return toggle("force", "replace an existing model directory") }
func deviceFlag() cli.Flag {
	return withDefault("device", "cpu", "compute on `NAME`: cpu, cuda, cuda:N or aten")
}
func dtypeFlag() cli.Flag {
	return withDefault("dtype", string(torch.ComputeAuto), "in `TYPE`: auto, float32 or bfloat16")
}
func planDeviceFlag() cli.Flag {
	return text("device", "with --dry-run: plan for `NAME` (h100, a100, here, ...)")
}
func resumeFlag() cli.Flag { return toggle("resume", "continue from the newest checkpoint, or start") }
func dryRunFlag() cli.Flag {
	return toggle("dry-run", "check everything, print it and the memory it needs, stop")
}
func ranksFlag() cli.Flag { return atLeast(1, "ranks", 0, "run in `N` processes on this machine") }
func restartsFlag() cli.Flag {
	return atLeast(0, "restarts", 0, "continue a failed run up to `N` times")
}
func questionFlag() cli.Flag {
	return text("question", "`COLUMN` of the problems, where it is not found by name")
}
func answerFlag() cli.Flag {
	return text("answer", "`COLUMN` of the answers, where it is not found by name")
}

func text(name, usage string) *cli.StringFlag { return &cli.StringFlag{Name: name, Usage: usage} }

func toggle(name, usage string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Usage: usage, DisableDefaultText: true}
}

func withDefault(name, value, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Value: value, Usage: usage}
}

// required is a flag without which a command does not start.
func required(name, usage string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Usage: usage, Required: true}
}

// integer is a flag whose values lie in a range.
func integer(name string, value, least, most int, usage string) *cli.IntFlag {
	return &cli.IntFlag{Name: name, Value: value, Usage: usage, Action: within(name, least, most)}
}

func atLeast(least int, name string, value int, usage string) *cli.IntFlag {
	return integer(name, value, least, math.MaxInt, usage)
}

func number(name string, value, least, most float64, usage string) *cli.Float64Flag {
	return &cli.Float64Flag{Name: name, Value: value, Usage: usage, Action: within(name, least, most)}
}

func within[T cmp.Ordered](name string, least, most T) func(*cli.Context, T) error {
	expected := fmt.Sprintf("%v to %v", least, most)
	if any(most) == any(math.MaxInt) {
		expected = fmt.Sprintf("at least %v", least)
	}
	return func(_ *cli.Context, value T) error {
		if value >= least && value <= most {
			return nil
		}
		return Usagef("--%s is %v, expected %s", name, value, expected)
	}
}

// placement is what computes the model of a command with --device and --dtype.
func placement(c *cli.Context) (torch.Placement, error) {
	p := torch.Placement{Device: c.String("device"), Compute: torch.Compute(c.String("dtype"))}
	if err := config.CheckDevice(p.Device); err != nil {
		return p, Usagef("--device: %w", err)
	}
	if err := p.Check(); err != nil {
		return p, Usagef("--dtype: %w", err)
	}
	return p, nil
}

// openThreads fixes the number of threads of a command with --threads.
func openThreads(c *cli.Context, on torch.Placement) error {
	_, err := experiment.OpenMachine(c.Int("threads"), on, func(format string, args ...any) {
		warn(c, fmt.Sprintf(format, args...))
	})
	return err
}

// excludes refuses other flags beside one, and says why.
func excludes(c *cli.Context, flag, why string, others ...string) error {
	for _, other := range others {
		if c.IsSet(flag) && c.IsSet(other) {
			return Usagef("--%s excludes --%s: %s", flag, other, why)
		}
	}
	return nil
}
