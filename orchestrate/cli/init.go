package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/configs"
	"gyre/internal/nearest"
	"gyre/orchestrate/model/checkpoint/policyinit"
)

// beginning is what `gyre init` writes for a kind: folders of configs.Init, and the command that comes next.
type beginning struct {
	folders []string
	next    string
}

var beginnings = map[string]beginning{
	"data":  {[]string{"data", "shared"}, "gyre train train.toml"},
	"env":   {[]string{"env"}, "gyre train train.toml"},
	"agent": {[]string{"agent", "shared"}, "gyre train train.toml"},
	"tinker": {[]string{"tinker", "shared"}, "pip install tinker\ngyre serve model        # in another terminal\n" +
		"TINKER_BASE_URL=http://127.0.0.1:8080 TINKER_API_KEY=tml-local python3 train.py"},
}

var beginningKinds = []string{"data", "env", "agent", "tinker"}

func initCommand() *cli.Command {
	return &cli.Command{
		Name: "init", Usage: "begin in a new folder with an experiment that trains as it is", ArgsUsage: "DIR",
		Flags: []cli.Flag{withDefault("kind", "data", "`KIND`: "+strings.Join(beginningKinds, ", "))},
		Action: func(c *cli.Context) error {
			kind, dir := c.String("kind"), c.Args().First()
			begin, known := beginnings[kind]
			if !known {
				return Usagef("--kind %s: expected one of %s%s", kind, strings.Join(beginningKinds, ", "),
					nearest.Hint(kind, beginningKinds))
			}
			written, err := fillEmpty(dir, begin.folders)
			if err != nil {
				return openingError(err)
			}
			return printf(c, "%s: %s\nNext:\ncd %s\n%s\n", dir, strings.Join(written, ", "), dir, begin.next)
		},
	}
}

// fillEmpty writes into a folder that is new or empty, which may be the one that the user stands in, and leaves it so
// where that fails.
func fillEmpty(dir string, folders []string) ([]string, error) {
	there, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Usagef("expected a new or empty folder: %w", err)
	}
	if len(there) > 0 {
		return nil, Usagef("%s is not empty: nothing is overwritten; name a new folder", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	written, err := writeBeginning(dir, folders)
	if err != nil {
		half, _ := os.ReadDir(dir)
		for _, e := range half {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return written, err
}

// writeBeginning copies the files of folders, and makes a small policy that reads bytes.
func writeBeginning(dir string, folders []string) (written []string, err error) {
	for _, folder := range folders {
		files, err := fs.Sub(configs.Init, "init/"+folder)
		if err == nil {
			err = os.CopyFS(dir, files)
		}
		if err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		written = append(written, e.Name())
	}
	slices.Sort(written)
	model, o := filepath.Join(dir, "model"), policyinit.Defaults
	o.Hidden, o.Layers, o.Heads, o.KVHeads, o.Intermediate, o.Vocab, o.Std = 64, 2, 4, 4, 256, 259, 0.12
	o.Corpus = []string{"0123456789"}
	if err := os.Mkdir(model, 0o755); err != nil {
		return nil, err
	}
	if _, err := policyinit.Create(model, o); err != nil {
		return nil, fmt.Errorf("making the model: %w", err)
	}
	return append(written, "model"), nil
}
