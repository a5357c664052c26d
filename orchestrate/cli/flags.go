package cli

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/figure"
	"gyre/internal/nearest"
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
	return withDefault("device", "cpu", "`NAME`: cpu, cuda, cuda:N or aten")
}
func dtypeFlag() cli.Flag {
	return withDefault("dtype", string(torch.ComputeAuto), "in `TYPE`: auto, float32 or bfloat16")
}
func planDeviceFlag() cli.Flag {
	return text("device", "with --dry-run: plan for `NAME` (h100, a100, here, ...)")
}
func resumeFlag() cli.Flag { return toggle("resume", "continue from the newest checkpoint, or start") }
func dryRunFlag() cli.Flag {
	return toggle("dry-run", "check everything, print the plan, stop")
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
func seedFlag() cli.Flag { return &cli.Uint64Flag{Name: "seed", Usage: "seed of all draws"} }
func samplingFlags() []cli.Flag {
	return []cli.Flag{
		number("temperature", 1, 0, 1e4, "divide the logits by `T`; 0 = greedy"),
		atLeast(0, "top-k", 0, "keep the `K` likeliest tokens; 0 = off"),
		number("top-p", 1, 1e-6, 1, "keep the likeliest of mass `P`; 1 = off"),
		number("min-p", 0, 0, 1, "drop below `P` times the likeliest; 0 = off"),
	}
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

// completionFlag is what shells append when they ask for completions.
const completionFlag = "--generate-bash-completion"

// arrange checks the command, flag names, required flags and the number of arguments, and moves flags ahead of
// arguments, where the flag package wants them: `gyre train demo.toml --resume` is what people type. Everything after
// -- stays as it is.
func arrange(app *cli.App, args []string) ([]string, error) {
	if len(args) < 2 || args[len(args)-1] == completionFlag {
		return args, nil
	}
	path, command, rest, err := findCommand(app, args)
	if err != nil || command == nil {
		return args, err
	}
	see := "see " + strings.Join(path, " ") + " --help"
	var flags, positionals []string
	given := map[cli.Flag]bool{}
	for len(rest) > 0 {
		word := rest[0]
		rest = rest[1:]
		if word == "--" {
			flags, positionals = append(flags, word), append(positionals, rest...)
			break
		}
		if !isFlag(word) {
			positionals = append(positionals, word)
			continue
		}
		name, value, attached := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if name == "h" || name == "help" { // urfave/cli's own
			return append(path, "--help"), nil
		}
		i := slices.IndexFunc(command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		if i < 0 {
			return nil, Usagef("%s has no flag %s%s; %s", strings.Join(path, " "), word, nearFlag(command, name), see)
		}
		flag := command.Flags[i]
		flags, given[flag] = append(flags, word), true
		if documented, ok := flag.(cli.DocGenerationFlag); !ok || !documented.TakesValue() {
			continue
		}
		if !attached && len(rest) > 0 {
			value, flags, rest = rest[0], append(flags, rest[0]), rest[1:]
		}
		if value == "" { // an unset variable of the shell, as a rule
			return nil, Usagef("--%s needs a value; %s", flag.Names()[0], see)
		}
	}
	for _, flag := range command.Flags {
		if required, ok := flag.(cli.RequiredFlag); ok && required.IsRequired() && !given[flag] {
			return nil, Usagef("%s needs --%s; %s", strings.Join(path, " "), flag.Names()[0], see)
		}
	}
	if least, most := arity(command.ArgsUsage); len(positionals) < least || most >= 0 && len(positionals) > most {
		return nil, Usagef("%s takes %s, got %d arguments; %s", strings.Join(path, " "),
			cmp.Or(command.ArgsUsage, "no arguments"), len(positionals), see)
	}
	return slices.Concat(path, flags, positionals), nil
}

// arity is how many arguments a command's usage names: FILE is one, [DIR] one or none, "..." any number more; most is
// then -1.
func arity(usage string) (least, most int) {
	if strings.Contains(usage, "...") {
		most = -1
	}
	optional := false
	for _, word := range strings.Fields(usage) {
		optional = optional || strings.HasPrefix(word, "[")
		if !optional && word != "..." {
			least++
		}
		if most >= 0 {
			most++
		}
		optional = optional && !strings.HasSuffix(word, "]")
	}
	return least, most
}

// findCommand walks down to the command that args name. A nil command means that the app itself answers (--help,
// --version, or help of a group of commands). A command with an action of its own and sub-commands takes what is not
// the name of one of them as its argument.
func findCommand(app *cli.App, args []string) (path []string, command *cli.Command, rest []string, err error) {
	path, rest = []string{app.Name}, args[1:]
	level := app.Commands
	for {
		acts := command != nil && command.Action != nil
		if len(rest) == 0 || isFlag(rest[0]) {
			if acts {
				return path, command, rest, nil
			}
			return nil, nil, nil, checkGroupFlags(path, rest)
		}
		i := slices.IndexFunc(level, func(c *cli.Command) bool { return c.HasName(rest[0]) })
		if i < 0 && acts {
			return path, command, rest, nil
		}
		if i < 0 {
			var names []string
			for _, c := range level {
				names = append(names, c.Names()...)
			}
			name := strings.Join(path, " ")
			return nil, nil, nil, Usagef("%s has no command %q%s; see %s --help", name, rest[0],
				nearest.Hint(rest[0], names), name)
		}
		command = level[i]
		path, rest, level = append(path, rest[0]), rest[1:], command.Subcommands
		if len(level) == 0 {
			return path, command, rest, nil
		}
	}
}

// checkGroupFlags refuses flags before a command name, other than the two that every program has.
func checkGroupFlags(path, rest []string) error {
	name := strings.Join(path, " ")
	if len(rest) == 0 || slices.Contains([]string{"-h", "--help", "-help"}, rest[0]) ||
		len(path) == 1 && slices.Contains([]string{"-v", "--version", "-version"}, rest[0]) {
		return nil
	}
	return Usagef("%s has no flag %s (flags follow the command); see %s --help", name, rest[0], name)
}

// nearFlag is a hint at the flag of a command that name is a slip of.
func nearFlag(command *cli.Command, name string) string {
	var names []string
	for _, flag := range command.Flags {
		for _, n := range flag.Names() {
			if len(n) > 1 {
				names = append(names, "--"+n)
			}
		}
	}
	return nearest.Hint("--"+name, names)
}

func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }
