package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"gyre/envs"
	"gyre/internal/dataset"
	"gyre/internal/nearest"
)

type options struct {
	File        string `option:"file" doc:"the data (.json, .jsonl, .parquet); none: sixteen small sums"`
	Question    string `option:"question" doc:"column of the problems, where it is not found by name"`
	Answer      string `option:"answer" doc:"column of the answers, where it is not found by name"`
	Instruction string `option:"instruction" doc:"added to problems that are not prompts yet: boxed, hash, or a text"`
	Shuffle     bool   `option:"shuffle" doc:"another order in every epoch; false = the file's order"`
	ShuffleSeed int    `option:"shuffle_seed" doc:"of the orders"`
	FirstSeed   int    `option:"first_seed" doc:"environment seed of the first row: run.env_seed in training; set by itself in a validation file"`
	Rows        int    `option:"rows" range:"[0,)" doc:"use the first rows only; 0 = all"`
	Attempts    int    `option:"attempts" range:"[1,)" doc:"replies per episode: after a wrong one the policy is asked again"`
	Feedback    string `option:"feedback" doc:"what a wrong reply is answered with"`
	MaxPrompt   int    `option:"max_prompt_length" range:"[0,)" doc:"leave out longer prompts, in tokens of tokenizer or characters; 0 = none"`
	Tokenizer   string `option:"tokenizer" doc:"model directory whose tokenizer and chat template measure prompts"`
}

func (o *options) make(request envs.Request) (envs.Env, error) {
	if meant, near := nearest.Match(o.Instruction, []string{"boxed", "hash"}); near && meant != o.Instruction &&
		!strings.Contains(strings.TrimSpace(o.Instruction), " ") {
		return nil, fmt.Errorf("option instruction: expected boxed, hash, or a text of several words, got %q (did you "+
			"mean %s?)", o.Instruction, meant)
	}
	if o.Tokenizer != "" && o.MaxPrompt == 0 {
		return nil, errors.New("option tokenizer: it measures prompts for max_prompt_length, which is 0")
	}
	set, err := o.load(request)
	if err != nil {
		return nil, fmt.Errorf("option file: %w", err)
	}
	return newReader(&rows{options: *o, set: set}, o.Attempts, o.Feedback, request.Components)
}

// rows gives the rows of a file in the order of the epochs. It belongs to one environment.
type rows struct {
	options options
	set     *dataset.Set
	epoch   int64
	order   []int // of the epoch; nil = not drawn yet
}

func (r *rows) row(seed int64) dataset.Row {
	n := int64(len(r.set.Rows))
	at := seed - int64(r.options.FirstSeed)
	epoch, position := at/n, at%n
	if position < 0 {
		epoch, position = epoch-1, position+n
	}
	if !r.options.Shuffle {
		return r.set.Rows[position]
	}
	if r.order == nil || r.epoch != epoch {
		r.epoch, r.order = epoch, envs.Rand("dataset/epoch", int64(r.options.ShuffleSeed), epoch).Perm(len(r.set.Rows))
	}
	return r.set.Rows[r.order[position]]
}

func (o options) load(request envs.Request) (*dataset.Set, error) {
	if o.File == "" {
		return &dataset.Set{Rows: samples()}, nil
	}
	key := o
	key.File = envs.FileKey(o.File)
	key.Shuffle, key.ShuffleSeed, key.FirstSeed, key.Attempts, key.Feedback = false, 0, 0, 0, ""
	t, err := envs.Shared(key, func() (*dataset.Set, error) { return read(o, request) })
	if errors.Is(err, fs.ErrNotExist) {
		return t, fmt.Errorf("%s: %w: %s", o.File, fs.ErrNotExist, howToGet(o.File))
	}
	return t, err
}

// howToGet says what to run where a file is missing.
func howToGet(file string) string {
	dir, name := filepath.Split(filepath.Clean(file))
	set := filepath.Base(dir)
	split := strings.TrimSuffix(name, filepath.Ext(name))
	if (set != "gsm8k" && set != "math500") || (split != "train" && split != "test") {
		return fmt.Sprintf("expected a file of prompts and answers (%s); `gyre data prepare --help` says how GSM8K "+
			"and MATH-500 become some, scripts/get-reasoning-gym.py writes reasoning-gym's",
			strings.Join(dataset.Formats, ", "))
	}
	command := "gyre data prepare " + set
	if standard := filepath.Join("data", set); filepath.Clean(dir) != standard {
		command += " --output " + filepath.Clean(dir)
	}
	return fmt.Sprintf("`%s` makes it from the files of the hub, with --input from files that you have", command)
}

// read loads a file and leaves out what does not fit.
func read(o options, request envs.Request) (*dataset.Set, error) {
	instruction, known := dataset.Instructions[o.Instruction]
	if !known {
		instruction = " " + o.Instruction
	}
	set, err := dataset.Load(o.File, dataset.Fields{Question: o.Question, Answer: o.Answer, Suffix: instruction})
	if err != nil {
		return nil, err
	}
	if o.Rows > 0 {
		set.Rows = set.Rows[:min(o.Rows, len(set.Rows))]
	}
	if o.MaxPrompt > 0 {
		set.Rows, err = within(set.Rows, o, request)
	}
	return set, err
}

// within leaves out rows with longer prompts than the options allow.
func within(list []dataset.Row, o options, request envs.Request) (kept []dataset.Row, err error) {
	measure := dataset.Characters
	if o.Tokenizer != "" {
		if request.CountTokens == nil {
			return nil, errors.New("option tokenizer: this program knows no tokenizers; leave it out to count " +
				"characters")
		}
		measure.Unit = "tokens"
		if measure.Of, err = request.CountTokens(o.Tokenizer); err != nil {
			return nil, fmt.Errorf("option tokenizer: %w (expected the directory of a model: `gyre model pull`, "+
				"`gyre model init` and `bash scripts/get-smollm2.sh` make some)", err)
		}
	}
	longest := 0
	for _, row := range list {
		n, err := measure.Of(row.Prompt)
		if err != nil {
			return nil, fmt.Errorf("%s row %d: %w", o.File, row.Index, err)
		}
		if n <= o.MaxPrompt {
			kept = append(kept, row)
		}
		longest = max(longest, n)
	}
	if kept == nil {
		return nil, fmt.Errorf("%s: no prompt is within max_prompt_length = %d %s; the longest has %d", o.File,
			o.MaxPrompt, measure.Unit, longest)
	}
	return kept, nil
}

func init() {
	envs.Register(envs.Spec{
		Tag: "Dataset", Type: "dataset", Doc: "a file of prompts and answers, one row per episode", MaxActions: 16,
		PlainReplies: true, Graded: true,
		NewOptions: func() any {
			return &options{Shuffle: true, ShuffleSeed: 1, FirstSeed: 10000, Attempts: 1,
				Feedback: "That answer is not right. Look for the mistake and answer again."}
		},
		NewFactory: func(r envs.Request) (envs.Factory, error) {
			return func() (envs.Env, error) { return r.Options.(*options).make(r) }, nil
		},
	}, envs.Spec{
		Tag: "Arithmetic", Type: "dataset", Doc: "sums, differences and products, made by seed", MaxActions: 1,
		PlainReplies: true, Graded: true,
		NewOptions: func() any { return &sums{Terms: 2, Digits: 1, Operators: "+", Problems: 1} },
		NewFactory: func(r envs.Request) (envs.Factory, error) {
			return r.Options.(*sums).factory(r.Components)
		},
	})
}
