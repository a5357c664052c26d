package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/internal/dataset"
	"gyre/internal/hub"
	"gyre/internal/nearest"
)

// The ways to divide MATH-500.
const (
	splitSeed     = "470/30"
	splitAll      = "all"
	splitLeakFree = "leak-free"
)

func dataPrepareCommand() *cli.Command {
	return &cli.Command{
		Name: "prepare", Usage: "write training files of a known data set", ArgsUsage: "math500|gsm8k|metamathqa",
		Description: `gyre data prepare math500 --input math500_test.json
gyre data prepare math500 --split leak-free --train MATH_train.jsonl
gyre data prepare gsm8k --input folder-with-train-and-test
gyre data prepare metamathqa --input MetaMathQA-395K.json

Without --input the files come from the Hugging Face hub (HF_ENDPOINT names a
mirror). DIR gets train and test as Parquet, with the columns of verl's
training files, and as JSON lines, and dataset.json, which says where they
come from.

Splits of math500: 470/30 (470 problems for training and 30 for validation,
those of the rldynamic project), all (500 for training, none held out), or
leak-free: training problems come from --train, without those that occur in
the 500, and all 500 are held out. gsm8k has its own two splits, metamathqa
has one for training, which the environment MetamathQA asks.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "input", Usage: "a file, or for gsm8k the folder of its two"},
			&cli.StringFlag{Name: "train", Usage: "`FILE` of training problems"},
			&cli.StringFlag{Name: "output", Usage: "`DIR`; data/NAME if left out"},
			&cli.StringFlag{Name: "split", Value: splitSeed, Usage: "470/30, all or leak-free (math500)"},
			&cli.StringFlag{Name: "answer-format", Usage: "boxed or hash: how answers are asked for"},
		},
		Action: dataPrepare,
	}
}

// preparation is what dataset.json holds.
type preparation struct {
	Name        string            `json:"name"`
	Split       string            `json:"split"`
	Instruction string            `json:"instruction"`
	Sources     map[string]string `json:"sources"` // file -> SHA-256
	Rows        map[string]int    `json:"rows"`
	// training problems that are held out elsewhere, or have no answer
	Removed int `json:"removed,omitempty"`
}

func dataPrepare(c *cli.Context) error {
	if c.NArg() != 1 {
		return Usagef("%s needs the name of a data set: math500, gsm8k or metamathqa", c.Command.HelpName)
	}
	name := c.Args().First()
	prepare, known := map[string]func(*cli.Context, *preparation, string) error{
		"math500": prepareMATH, "gsm8k": prepareGSM, "metamathqa": prepareMetaMath,
	}[name]
	if !known {
		names := []string{"math500", "gsm8k", "metamathqa"}
		return Usagef("unknown data set %q%s; expected one of %s (other files of prompts and answers need no "+
			"preparation)", name,
			nearest.Hint(name, names), strings.Join(names, ", "))
	}
	p := &preparation{Name: name, Sources: map[string]string{}, Rows: map[string]int{}}
	format := c.String("answer-format")
	switch {
	case name == "metamathqa" && (format != "" || c.IsSet("split") || c.IsSet("train")):
		return Usagef("--answer-format, --split and --train are for math500 and gsm8k")
	case format == "":
		format = map[string]string{"math500": "boxed", "gsm8k": "hash"}[name]
	}
	switch format {
	case "": // the environment asks
	case "boxed":
		p.Instruction = dataset.BoxedInstruction
	case "hash":
		p.Instruction = dataset.HashInstruction
	default:
		return Usagef("--answer-format: expected boxed or hash, got %q", format)
	}
	dir := c.String("output")
	if dir == "" {
		dir = filepath.Join("data", name)
	}
	if err := prepare(c, p, dir); err != nil {
		return err
	}
	if err := dataset.Write(filepath.Join(dir, "dataset.json"), []preparation{*p}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s: %d rows for training, %d held out\n", dir, p.Rows["train"], p.Rows["test"])
	return err
}

// source reads one input file, from the hub where none is given.
func source(c *cli.Context, p *preparation, path, split, dir string) (*dataset.Table, error) {
	if path == "" {
		var err error
		path, err = dataset.Download(c.Context, hub.FromEnvironment(), p.Name, split, filepath.Join(dir, "original"),
			hub.Lines(c.App.ErrWriter))
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

// write writes a split in both formats.
func write[T any](p *preparation, dir, split string, rows []T) error {
	p.Rows[split] = len(rows)
	return errors.Join(dataset.Write(filepath.Join(dir, split+".parquet"), rows),
		dataset.Write(filepath.Join(dir, split+".jsonl"), rows))
}

func prepareMATH(c *cli.Context, p *preparation, dir string) error {
	p.Split = c.String("split")
	if !slices.Contains([]string{splitSeed, splitAll, splitLeakFree}, p.Split) {
		return Usagef("--split: expected %s, %s or %s, got %q", splitSeed, splitAll, splitLeakFree, p.Split)
	}
	if (p.Split == splitLeakFree) != (c.String("train") != "") {
		return Usagef("--split %s and --train FILE go together: training problems then come from FILE", splitLeakFree)
	}
	test, err := source(c, p, c.String("input"), "test", dir)
	if err != nil {
		return err
	}
	train, trainIndices, held := test, []int(nil), dataset.All(len(test.Rows))
	switch p.Split {
	case splitSeed:
		trainIndices, held = dataset.Math500Split()
		if want := len(trainIndices) + len(held); len(test.Rows) != want {
			return Usagef("%s has %d rows, but the split 470/30 is one of MATH-500's %d", test.Path, len(test.Rows),
				want)
		}
	case splitAll:
		trainIndices, held = held, nil
	case splitLeakFree:
		if train, err = source(c, p, c.String("train"), "", dir); err != nil {
			return err
		}
		trainIndices, p.Removed = dataset.Without(train, test)
	}
	trainRows, err := dataset.MATH(train, trainIndices, "train", p.Instruction)
	if err != nil {
		return Usagef("%w", err)
	}
	heldRows, err := dataset.MATH(test, held, "test", p.Instruction)
	if err != nil {
		return Usagef("%w", err)
	}
	return errors.Join(write(p, dir, "train", trainRows), write(p, dir, "test", heldRows))
}

func prepareGSM(c *cli.Context, p *preparation, dir string) error {
	if c.IsSet("split") {
		return Usagef("--split is math500's: gsm8k comes in two splits")
	}
	p.Split = "own"
	input := c.String("input")
	paths := map[string]string{"train": c.String("train"), "test": input}
	if info, err := os.Stat(input); input != "" && err != nil {
		return Usagef("--input: %w", err)
	} else if input != "" && info.IsDir() {
		for split := range paths {
			for _, ending := range dataset.Formats {
				if path := filepath.Join(input, split+ending); exists(path) {
					paths[split] = path
				}
			}
			if paths[split] == input || paths[split] == "" {
				return Usagef("--input: %s has no %s.jsonl, .json or .parquet", input, split)
			}
		}
	}
	if (paths["train"] == "") != (paths["test"] == "") {
		return Usagef("gsm8k needs both of its files: --input FOLDER, or --train FILE --input TESTFILE")
	}
	for _, split := range []string{"train", "test"} {
		table, err := source(c, p, paths[split], split, dir)
		if err != nil {
			return err
		}
		rows, err := dataset.GSM(table, dataset.All(len(table.Rows)), split, p.Instruction)
		if err != nil {
			return Usagef("%w", err)
		}
		if err := write(p, dir, split, rows); err != nil {
			return err
		}
	}
	return nil
}

func prepareMetaMath(c *cli.Context, p *preparation, dir string) error {
	table, err := source(c, p, c.String("input"), "train", dir)
	if err != nil {
		return err
	}
	rows, left, err := dataset.MetaMath(table)
	if err != nil {
		return Usagef("--input: %w", err)
	}
	p.Split, p.Removed = "own", left
	return write(p, dir, "train", rows)
}
