package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/nearest"
)

// completionFlag is what shells append when they ask for completions.
const completionFlag = "--generate-bash-completion"

// arrange checks the command, flag names and required flags, and moves flags ahead of positional arguments, where the
// flag package wants them: `gyre train demo.toml --resume` is what people type. Everything after -- stays as it is.
func arrange(app *cli.App, args []string) ([]string, error) {
	if len(args) < 2 || args[len(args)-1] == completionFlag {
		return args, nil
	}
	path, command, rest, err := findCommand(app, args)
	if err != nil || command == nil {
		return args, err
	}
	flags, positionals, given := []string{}, []string{}, map[string]bool{}
	for len(rest) > 0 {
		word := rest[0]
		rest = rest[1:]
		if word == "--" {
			positionals = append(append(positionals, word), rest...)
			break
		}
		if !isFlag(word) {
			positionals = append(positionals, word)
			continue
		}
		flag, err := findFlag(command, word)
		if err != nil {
			return nil, err
		}
		flags = append(flags, word)
		if flag == nil { // --help: urfave/cli's own
			return append(path, "--help"), nil
		}
		for _, name := range flag.Names() {
			given[name] = true
		}
		_, value, attached := strings.Cut(word, "=")
		if takesValue(flag) && !attached && len(rest) > 0 {
			value = rest[0]
			flags = append(flags, value)
			rest = rest[1:]
		}
		if takesValue(flag) && value == "" { // an unset variable of the shell, as a rule
			return nil, Usagef("--%s needs a value; see %s --help", flag.Names()[0], strings.Join(path, " "))
		}
	}
	for _, flag := range command.Flags {
		required, ok := flag.(cli.RequiredFlag)
		if ok && required.IsRequired() && !given[flag.Names()[0]] {
			return nil, Usagef("%s needs --%s; see %s --help", strings.Join(path, " "), flag.Names()[0],
				strings.Join(path, " "))
		}
	}
	return slices.Concat(path, flags, positionals), nil
}

// findCommand walks down to the command that args name. A nil command means that the app itself answers (--help,
// --version, or help of a group of commands). A command with an action of its own and sub-commands takes what is not
// the name of one of them as its argument.
func findCommand(app *cli.App, args []string) (path []string, command *cli.Command, rest []string, err error) {
	path, rest = []string{app.Name}, args[1:]
	level := app.Commands
	for {
		if len(rest) == 0 || isFlag(rest[0]) {
			if command != nil && command.Action != nil {
				return path, command, rest, nil
			}
			return nil, nil, nil, checkGroupFlags(path, rest)
		}
		i := slices.IndexFunc(level, func(c *cli.Command) bool { return c.HasName(rest[0]) })
		if i < 0 && command != nil && command.Action != nil {
			return path, command, rest, nil
		}
		if i < 0 {
			return nil, nil, nil, Usagef("%s has no command %q%s; see %s --help", strings.Join(path, " "), rest[0],
				nearest.Hint(rest[0], commandNames(level)), strings.Join(path, " "))
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

// findFlag returns the flag that word names; nil without an error for help.
func findFlag(command *cli.Command, word string) (cli.Flag, error) {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	if name == "h" || name == "help" {
		return nil, nil
	}
	var names []string
	for _, flag := range command.Flags {
		if slices.Contains(flag.Names(), name) {
			return flag, nil
		}
		for _, n := range flag.Names() {
			if len(n) > 1 {
				names = append(names, "--"+n)
			}
		}
	}
	return nil, Usagef("%s has no flag %s%s; see gyre %s --help", command.Name, word,
		nearest.Hint("--"+name, names), command.Name)
}

func isFlag(word string) bool { return len(word) > 1 && word[0] == '-' }

func takesValue(flag cli.Flag) bool {
	f, ok := flag.(cli.DocGenerationFlag)
	return ok && f.TakesValue()
}

func commandNames(commands []*cli.Command) []string {
	var names []string
	for _, c := range commands {
		names = append(names, c.Names()...)
	}
	return names
}
