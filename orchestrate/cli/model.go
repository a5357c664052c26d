package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/hub"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/model/checkpoint/convert"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/orchestrate/model/checkpoint/pull"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

func modelCommand() *cli.Command {
	return &cli.Command{
		Name:  "model",
		Usage: "make, inspect, convert and download models",
		Subcommands: []*cli.Command{
			modelInitCommand(),
			{
				Name: "info", Usage: "print what a model directory or a file of weights holds", ArgsUsage: "DIR|FILE",
				Description: "gyre model info models/smollm2-135m-instruct --tensors",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "tensors", Usage: "list every tensor"},
					jsonFlag(),
				},
				Action: modelInfo,
			},
			{
				Name: "convert", Usage: "write GGUF or another model as a Hugging Face directory",
				ArgsUsage: "FILE.gguf|DIR TARGET",
				Description: "gyre model convert SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2\n" +
					"gyre model convert runs/demo/global_step_40/actor mine --dtype bfloat16\n\n" +
					"Weights keep their type unless --dtype is given; GGUF becomes float32.",
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "dtype", Usage: "store weights as `TYPE`: float32, bfloat16 or float16"},
					forceFlag(),
				},
				Action: modelConvert,
			},
			{
				Name: "pull", Usage: "download a model from a Hugging Face hub", ArgsUsage: "ORG/NAME [DIR]",
				Description: "gyre model pull Qwen/Qwen2.5-0.5B-Instruct\n\n" +
					"DIR is models/NAME if left out. HF_ENDPOINT names another hub or a mirror,\n" +
					"HF_TOKEN gives access to gated models. An interrupted download goes on where\n" +
					"it stopped.",
				Flags:  []cli.Flag{&cli.StringFlag{Name: "revision", Value: "main", Usage: "branch, tag or commit"}},
				Action: modelPull,
			},
		},
	}
}

// modelMarker is the file by which --force recognises a directory that it may replace.
const modelMarker = "config.json"

func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force", Usage: "replace an existing model directory"}
}

// wantArgs checks the number of arguments.
func wantArgs(c *cli.Context, least, most int) error {
	if n := c.NArg(); n < least || n > most {
		return Usagef("%s needs %s, got %d arguments; see %s --help", c.Command.HelpName, c.Command.ArgsUsage, n,
			c.Command.HelpName)
	}
	return nil
}

func modelInitCommand() *cli.Command {
	d := policyinit.Defaults
	return &cli.Command{
		Name: "init", Usage: "make a small random policy with a tokenizer of its own", ArgsUsage: "DIR",
		Description: "gyre model init models/policy --hidden 128 --layers 4\n\n" +
			"The tokenizer is learned from the texts of --corpus, or from what the\n" +
			"environments would show and experts would answer.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "family", Value: d.Family, Usage: "llama, qwen2 or qwen3"},
			&cli.Int64Flag{Name: "hidden", Value: d.Hidden, Usage: "width of the residual stream"},
			&cli.Int64Flag{Name: "layers", Value: d.Layers, Usage: "transformer blocks"},
			&cli.Int64Flag{Name: "heads", Value: d.Heads, Usage: "attention heads"},
			&cli.Int64Flag{Name: "kv-heads", Value: d.KVHeads, Usage: "key and value heads; divides --heads"},
			&cli.Int64Flag{Name: "intermediate", Value: d.Intermediate, Usage: "width of the MLP"},
			&cli.Int64Flag{Name: "vocab", Value: d.Vocab, Usage: "tokens at most; 259 = single bytes only"},
			&cli.Int64Flag{Name: "max-positions", Value: d.MaxPositions, Usage: "longest sequence"},
			&cli.BoolFlag{Name: "untied", Usage: "give the language-model head its own weights"},
			&cli.Float64Flag{Name: "std", Value: d.Std, Usage: "standard deviation of weights"},
			&cli.Uint64Flag{Name: "seed", Value: d.Seed, Usage: "seed of the weights"},
			&cli.StringSliceFlag{Name: "corpus", Usage: "text `FILE` for the tokenizer; may be repeated"},
			forceFlag(),
		},
		Action: modelInit,
	}
}

func modelInit(c *cli.Context) error {
	if err := wantArgs(c, 1, 1); err != nil {
		return err
	}
	o := policyinit.Options{Family: c.String("family"), Hidden: c.Int64("hidden"), Layers: c.Int64("layers"),
		Heads:   c.Int64("heads"),
		KVHeads: c.Int64("kv-heads"), Intermediate: c.Int64("intermediate"), Vocab: c.Int64("vocab"),
		MaxPositions: c.Int64("max-positions"),
		Tie:          !c.Bool("untied"), Std: c.Float64("std"), Seed: c.Uint64("seed")}
	if err := o.Check(); err != nil {
		return Usagef("%w", err)
	}
	for _, file := range c.StringSlice("corpus") {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		o.Corpus = append(o.Corpus, string(text))
	}
	if len(o.Corpus) == 0 {
		corpus, err := experiment.Corpus(c.Context)
		if err != nil {
			return fmt.Errorf("rendering the environments: %w", err)
		}
		o.Corpus = corpus
	}
	var made hf.Config
	err := atomicfile.CreateDir(c.Args().First(), modelMarker, c.Bool("force"), func(dir string) (err error) {
		made, err = policyinit.Create(dir, o)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "%s: a %s policy of %.2f M parameters, %d tokens\n", c.Args().First(), made.Family,
		float64(made.Count(torch.HeadLM))/1e6, made.VocabSize)
	return nil
}

// modelFrom looks at a model before it is read: one that is not there has to come from somewhere, one of a checkpoint
// has to be what was saved.
func modelFrom(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return Usagef("%w: %s", err, experiment.HowToGet(path))
	}
	return checkpoint.VerifyModel(path)
}

func modelInfo(c *cli.Context) error {
	if err := wantArgs(c, 1, 1); err != nil {
		return err
	}
	if err := modelFrom(c.Args().First()); err != nil {
		return err
	}
	info, err := convert.Inspect(c.Args().First())
	if err != nil {
		return err
	}
	if !c.Bool("json") {
		return info.Print(c.App.Writer, c.Bool("tensors"))
	}
	if !c.Bool("tensors") {
		info.Tensors = nil
	}
	out := json.NewEncoder(c.App.Writer)
	out.SetIndent("", "  ")
	return out.Encode(info)
}

func modelConvert(c *cli.Context) error {
	if err := wantArgs(c, 2, 2); err != nil {
		return err
	}
	var dtype *weights.DType
	if name := c.String("dtype"); name != "" {
		d, err := weights.ParseDType(name)
		if err != nil {
			return Usagef("--dtype: %w", err)
		}
		dtype = &d
	}
	source, target := c.Args().Get(0), c.Args().Get(1)
	if err := modelFrom(source); err != nil {
		return err
	}
	var done convert.Summary
	err := atomicfile.CreateDir(target, modelMarker, c.Bool("force"), func(dir string) (err error) {
		done, err = convert.Convert(source, dir, dtype)
		return err
	})
	if err != nil {
		return err
	}
	for _, note := range done.Notes {
		fmt.Fprintln(c.App.ErrWriter, "note:", note)
	}
	fmt.Fprintf(c.App.Writer, "%s: %s, %.1f M parameters as %v, from %s tensors\n", target, done.Config.Family,
		float64(done.Parameters)/1e6, done.Config.DType,
		done.Stored)
	return nil
}

func modelPull(c *cli.Context) error {
	if err := wantArgs(c, 1, 2); err != nil {
		return err
	}
	name, dir := c.Args().Get(0), c.Args().Get(1)
	if dir == "" {
		dir = path.Join("models", path.Base(name))
	}
	err := pull.Model(c.Context, hub.FromEnvironment(), name, c.String("revision"), dir, hub.Lines(c.App.ErrWriter))
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.Writer, "%s: %s\n", dir, name)
	return nil
}
