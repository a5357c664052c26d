package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/nearest"
)

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
