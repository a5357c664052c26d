package cli

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/internal/nearest"
)

func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "what a command does and takes", ArgsUsage: "[COMMAND ...]",
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return cli.ShowAppHelp(c)
			}
			words, err := arrange(c.App, slices.Concat([]string{c.App.Name}, c.Args().Slice(), []string{"--help"}))
			if err != nil {
				return err
			}
			return c.App.RunContext(c.Context, words)
		},
	}
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "the commit and the compiler that made this program",
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintln(c.App.Writer, c.App.Version)
			return err
		},
	}
}

// Shells ask the program itself what fits: words of commands, or flags where one has been begun. Where nothing does,
// files do.
var completions = map[string]string{
	"bash": `_gyre() {
  local current="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $current == -* ]] && words+=("$current")
  COMPREPLY=($(compgen -W "$("${words[@]}" ` + completionFlag + ` 2>/dev/null)" -- "$current"))
}
complete -o bashdefault -o default -F _gyre gyre
`,
	"zsh": `#compdef gyre
_gyre() {
  local -a before found
  before=("${(@)words[1,CURRENT-1]}")
  [[ ${words[CURRENT]} == -* ]] && before+=("${words[CURRENT]}")
  found=("${(@f)$("${before[@]}" ` + completionFlag + ` 2>/dev/null)}")
  [[ -n ${found[1]} ]] && compadd -a found || _files
}
compdef _gyre gyre
`,
}

func completionCommand() *cli.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cli.Command{
		Name: "completion", Usage: "completions for a shell", ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			shell := c.Args().First()
			script, ok := completions[shell]
			if shell == "fish" {
				var err error
				if script, err = c.App.ToFishCompletion(); err != nil {
					return err
				}
			} else if !ok {
				return Usagef("no completions for %q%s: expected bash, zsh or fish", shell, nearest.Hint(shell, shells))
			}
			_, err := fmt.Fprint(c.App.Writer, script)
			return err
		},
	}
}
