package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/urfave/cli/v2"

	"gyre/internal/atomicfile"
	"gyre/internal/hub"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/model/checkpoint/convert"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/peft"
	"gyre/orchestrate/model/checkpoint/policyinit"
	"gyre/orchestrate/model/checkpoint/pull"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

func modelCommand() *cli.Command {
	return &cli.Command{
		Name: "model", Usage: "make, inspect, convert and download models",
		Subcommands: []*cli.Command{
			modelInitCommand(),
			{
				Name: "info", Usage: "print what a model directory or a file of weights holds", ArgsUsage: "DIR|FILE",
				Flags:  []cli.Flag{toggle("tensors", "list every tensor"), jsonFlag()},
				Action: modelInfo,
			},
			{
				Name: "convert", Usage: "write GGUF or another model as a Hugging Face directory",
				ArgsUsage: "FILE.gguf|DIR TARGET",
				Flags:     []cli.Flag{text("dtype", "store weights as `TYPE`: float32, bfloat16 or float16"), forceFlag()},
				Action:    modelConvert,
			},
			{
				Name: "merge", Usage: "add adapters to their base model's weights", ArgsUsage: "ADAPTER TARGET",
				Flags: []cli.Flag{text("base", "the base model in `DIR`; else the one that the adapters name"),
					text("dtype", "store weights as `TYPE`: float32, bfloat16 or float16"), forceFlag()},
				Action: modelMerge,
			},
			{
				Name: "pull", Usage: "download a model from a Hugging Face hub", ArgsUsage: "ORG/NAME [DIR]",
				Flags:  []cli.Flag{withDefault("revision", "main", "branch, tag or commit")},
				Action: modelPull,
			},
		},
	}
}

// modelMarker is the file by which --force recognises a directory that it may replace.
const modelMarker = "config.json"

func modelInitCommand() *cli.Command {
	o := policyinit.Defaults
	size := func(name string, to *int64, usage string) cli.Flag {
		return &cli.Int64Flag{Name: name, Value: *to, Destination: to, Usage: usage}
	}
	return &cli.Command{
		Name: "init", Usage: "make a small random policy with a tokenizer of its own", ArgsUsage: "DIR",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "family", Value: o.Family, Destination: &o.Family, Usage: "`NAME` of the family"},
			size("hidden", &o.Hidden, "width of the residual stream"),
			size("layers", &o.Layers, "transformer blocks"),
			size("heads", &o.Heads, "attention heads"),
			size("kv-heads", &o.KVHeads, "key and value heads; divides --heads"),
			size("intermediate", &o.Intermediate, "width of the MLP"),
			size("experts", &o.Experts, "of a mixture of experts"),
			size("experts-per-token", &o.ChosenExperts, "of them that compute a token"),
			size("vocab", &o.Vocab, "most tokens; 259 = single bytes"),
			size("max-positions", &o.MaxPositions, "longest sequence"),
			toggle("untied", "give the language-model head its own weights"),
			&cli.Float64Flag{Name: "std", Value: o.Std, Destination: &o.Std, Usage: "standard deviation of weights"},
			&cli.Uint64Flag{Name: "seed", Value: o.Seed, Destination: &o.Seed, Usage: "seed of the weights"},
			&cli.StringSliceFlag{Name: "corpus", Usage: "text `FILE` for the tokenizer; may be repeated"},
			&cli.StringFlag{Name: "tokenizer", Destination: &o.Tokenizer,
				Usage: "instead take the tokenizer of the model in `DIR`"},
			forceFlag(),
		},
		Action: func(c *cli.Context) error {
			o.Tie = !c.Bool("untied")
			return modelInit(c, o)
		},
	}
}

func modelInit(c *cli.Context, o policyinit.Options) error {
	if err := o.Check(); err != nil {
		return Usagef("%w", err)
	}
	if o.Tokenizer != "" && (c.IsSet("corpus") || c.IsSet("vocab")) {
		return Usagef("--tokenizer takes no --corpus and no --vocab: the tokenizer is that of %s", o.Tokenizer)
	}
	for _, file := range c.StringSlice("corpus") {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		o.Corpus = append(o.Corpus, string(text))
	}
	if len(o.Corpus) == 0 && o.Tokenizer == "" {
		var err error
		if o.Corpus, err = sft.Corpus(c.Context); err != nil {
			return fmt.Errorf("rendering the environments: %w", err)
		}
	}
	var made hf.Config
	err := atomicfile.CreateDir(c.Args().First(), modelMarker, c.Bool("force"), func(dir string) (err error) {
		made, err = policyinit.Create(dir, o)
		return err
	})
	if err != nil {
		return err
	}
	return printf(c, "%s: a %s policy of %.2f M parameters, %d tokens\n", c.Args().First(), made.Family,
		float64(made.Count(torch.HeadLM))/1e6, made.VocabSize)
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
	return printJSON(c, info)
}

func modelConvert(c *cli.Context) error {
	source, target := c.Args().Get(0), c.Args().Get(1)
	return modelRewrite(c, source, target, func(dir string, dtype *weights.DType) (convert.Summary, error) {
		return convert.Convert(source, dir, dtype)
	})
}

func modelMerge(c *cli.Context) error {
	adapter, target, base := c.Args().Get(0), c.Args().Get(1), c.String("base")
	if base == "" {
		named, err := checkpoint.BaseOf(adapter)
		if err != nil {
			return err
		}
		if base = named; base == "" {
			return Usagef("%s holds no adapter: expected a directory with %s", adapter, peft.ConfigName)
		}
	}
	return modelRewrite(c, base, target, func(dir string, dtype *weights.DType) (convert.Summary, error) {
		return convert.Merge(base, adapter, dir, dtype)
	})
}

// modelRewrite makes the directory target of the model at source, as write does, and says what was written.
func modelRewrite(c *cli.Context, source, target string,
	write func(dir string, dtype *weights.DType) (convert.Summary, error)) error {
	var dtype *weights.DType
	if name := c.String("dtype"); name != "" {
		d, err := weights.ParseDType(name)
		if err != nil {
			return Usagef("--dtype: %w", err)
		}
		dtype = &d
	}
	if err := modelFrom(source); err != nil {
		return err
	}
	var done convert.Summary
	err := atomicfile.CreateDir(target, modelMarker, c.Bool("force"), func(dir string) (err error) {
		done, err = write(dir, dtype)
		return err
	})
	if err != nil {
		return err
	}
	for _, note := range done.Notes {
		fmt.Fprintln(c.App.ErrWriter, "note:", note)
	}
	return printf(c, "%s: %s, %.1f M parameters as %v, from %s tensors\n", target, done.Config.Family,
		float64(done.Parameters)/1e6, done.Config.DType, done.Stored)
}

func modelPull(c *cli.Context) error {
	name := c.Args().Get(0)
	dir := cmp.Or(c.Args().Get(1), path.Join("models", path.Base(name)))
	err := pull.Model(c.Context, hub.FromEnvironment(), name, c.String("revision"), dir, hub.Lines(c.App.ErrWriter))
	if err != nil {
		return err
	}
	return printf(c, "%s: %s\n", dir, name)
}
