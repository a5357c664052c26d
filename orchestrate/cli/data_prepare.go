package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/dataset"
	"gyre/internal/hub"
	"gyre/internal/nearest"
)

func dataPrepareCommand() *cli.Command {
	return &cli.Command{
		Name: "prepare", Usage: "write training files of a known data set", ArgsUsage: "math500|gsm8k|metamathqa",
		Flags: []cli.Flag{
			text("input", "a file, or for gsm8k the folder of its two"),
			text("train", "`FILE` of training problems"),
			text("output", "`DIR`; data/NAME if left out"),
			text("split", "470/30 (the default), all or leak-free (math500)"),
			text("answer-format", "boxed or hash: how answers are asked for"),
		},
		Action: dataPrepare,
	}
}

// preparation is what dataset.json holds.
type preparation struct {
	c           *cli.Context
	dir         string
	Name        string            `json:"name"`
	Split       string            `json:"split"`
	Instruction string            `json:"instruction"`
	Sources     map[string]string `json:"sources"` // file -> SHA-256
	Rows        map[string]int    `json:"rows"`
	// training problems that are held out elsewhere, or have no answer
	Removed int `json:"removed,omitempty"`
}

// knownSets are the data sets with the way in which each asks for answers; MetaMathQA's environment asks by itself.
var knownSets = map[string]struct {
	format  string
	prepare func(*preparation) error
}{
	"math500":    {"boxed", (*preparation).math500},
	"gsm8k":      {"hash", (*preparation).gsm8k},
	"metamathqa": {"", (*preparation).metaMath},
}

func dataPrepare(c *cli.Context) error {
	name := c.Args().First()
	set, known := knownSets[name]
	if !known {
		names := slices.Sorted(maps.Keys(knownSets))
		return Usagef("unknown data set %q%s; expected one of %s (other files of prompts and answers need no "+
			"preparation)", name, nearest.Hint(name, names), strings.Join(names, ", "))
	}
	if name == "metamathqa" && (c.IsSet("answer-format") || c.IsSet("split") || c.IsSet("train")) {
		return Usagef("--answer-format, --split and --train are for math500 and gsm8k")
	}
	format := cmp.Or(c.String("answer-format"), set.format)
	instruction, known := dataset.Instructions[format]
	if !known {
		return Usagef("--answer-format: expected boxed or hash, got %q", format)
	}
	p := &preparation{c: c, dir: cmp.Or(c.String("output"), filepath.Join("data", name)), Name: name, Split: "own",
		Instruction: instruction, Sources: map[string]string{}, Rows: map[string]int{}}
	if err := set.prepare(p); err != nil {
		return err
	}
	if err := dataset.Write(filepath.Join(p.dir, "dataset.json"), []preparation{*p}); err != nil {
		return err
	}
	return printf(c, "%s: %d rows for training, %d held out\n", p.dir, p.Rows["train"], p.Rows["test"])
}

// source reads one input file, from the hub where none is given.
func (p *preparation) source(path, split string) (*dataset.Table, error) {
	if path == "" {
		var err error
		path, err = dataset.Download(p.c.Context, hub.FromEnvironment(), p.Name, split,
			filepath.Join(p.dir, "original"), hub.Lines(p.c.App.ErrWriter))
		if err != nil {
			return nil, fmt.Errorf("downloading %s: %w", p.Name, err)
		}
	}
	table, err := dataset.Read(path)
	if err != nil {
		return nil, Usagef("--input: %w", err)
	}
	p.Sources[filepath.Base(path)] = table.Hash
	return table, nil
}

// writeSplit writes a split in both formats.
func writeSplit[T any](p *preparation, split string, rows []T, err error) error {
	if err != nil {
		return Usagef("%w", err)
	}
	p.Rows[split] = len(rows)
	return errors.Join(dataset.Write(filepath.Join(p.dir, split+".parquet"), rows),
		dataset.Write(filepath.Join(p.dir, split+".jsonl"), rows))
}

func (p *preparation) math500() error {
	p.Split = cmp.Or(p.c.String("split"), "470/30")
	if !slices.Contains([]string{"470/30", "all", "leak-free"}, p.Split) {
		return Usagef("--split: expected 470/30, all or leak-free, got %q", p.Split)
	}
	if (p.Split == "leak-free") != (p.c.String("train") != "") {
		return Usagef("--split leak-free and --train FILE go together: training problems then come from FILE")
	}
	test, err := p.source(p.c.String("input"), "test")
	if err != nil {
		return err
	}
	train, trainIndices, held := test, []int(nil), dataset.All(len(test.Rows))
	switch p.Split {
	case "470/30":
		trainIndices, held = dataset.Math500Split()
		if want := len(trainIndices) + len(held); len(test.Rows) != want {
			return Usagef("%s has %d rows, but the split 470/30 is one of MATH-500's %d", test.Path, len(test.Rows),
				want)
		}
	case "all":
		trainIndices, held = held, nil
	case "leak-free":
		if train, err = p.source(p.c.String("train"), ""); err != nil {
			return err
		}
		trainIndices, p.Removed = dataset.Without(train, test)
	}
	rows, err := dataset.MATH(train, trainIndices, "train", p.Instruction)
	if err := writeSplit(p, "train", rows, err); err != nil {
		return err
	}
	rows, err = dataset.MATH(test, held, "test", p.Instruction)
	return writeSplit(p, "test", rows, err)
}

func (p *preparation) gsm8k() error {
	if p.c.IsSet("split") {
		return Usagef("--split is math500's: gsm8k comes in two splits")
	}
	input := p.c.String("input")
	paths := map[string]string{"train": p.c.String("train"), "test": input}
	if info, err := os.Stat(input); input != "" && err != nil {
		return Usagef("--input: %w", err)
	} else if input != "" && info.IsDir() {
		for split := range paths {
			found, _ := filepath.Glob(filepath.Join(input, split+".*"))
			i := slices.IndexFunc(found, func(f string) bool {
				return slices.Contains(dataset.Formats, filepath.Ext(f))
			})
			if i < 0 {
				return Usagef("--input: %s has no %s.jsonl, .json or .parquet", input, split)
			}
			paths[split] = found[i]
		}
	}
	if (paths["train"] == "") != (paths["test"] == "") {
		return Usagef("gsm8k needs both of its files: --input FOLDER, or --train FILE --input TESTFILE")
	}
	for _, split := range []string{"train", "test"} {
		table, err := p.source(paths[split], split)
		if err != nil {
			return err
		}
		rows, err := dataset.GSM(table, dataset.All(len(table.Rows)), split, p.Instruction)
		if err := writeSplit(p, split, rows, err); err != nil {
			return err
		}
	}
	return nil
}

func (p *preparation) metaMath() error {
	table, err := p.source(p.c.String("input"), "train")
	if err != nil {
		return err
	}
	rows, left, err := dataset.MetaMath(table)
	p.Removed = left
	return writeSplit(p, "train", rows, err)
}
