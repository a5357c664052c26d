package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

func generateCommand() *cli.Command {
	return &cli.Command{
		Name:  "generate",
		Usage: "continue prompts: JSONL in, JSONL out",
		Description: `echo '{"messages": [{"role": "user", "content": "What is Go?"}]}' |
  gyre generate --model models/smollm2-135m-instruct --temperature 0

Rows are {"ids": […]}, {"text": "…"} or {"messages": […]}; those given as ids
need no tokenizer files. Each gives {"ids": […], "text": "…",
"logprobs": […], "finish_reason": "stop" or "length"}: the new tokens, their
text without special tokens, and their log-probs at the given temperature
over the whole vocabulary.
A row's result depends on --seed and its place in the input, not on --batch.
With --stream there is a line {"row", "ids", "text"} for every piece of a
reply as soon as it is drawn, and the reply's last line has "last".`,
		Flags: append(promptFlags(),
			&cli.Float64Flag{Name: "temperature", Value: 1, Usage: "divide the logits by `T`; 0 = greedy"},
			&cli.IntFlag{Name: "top-k", Usage: "keep the `K` likeliest tokens; 0 = off"},
			&cli.Float64Flag{Name: "top-p", Value: 1, Usage: "keep the likeliest of mass `P`; 1 = off"},
			&cli.Float64Flag{Name: "min-p", Usage: "drop below `P` times the likeliest; 0 = off"},
			&cli.IntFlag{Name: "max-tokens", Value: 256, Usage: "stop after `N` new tokens"},
			&cli.IntFlag{Name: "min-tokens", Usage: "do not stop before `N` new tokens"},
			&cli.StringSliceFlag{Name: "stop", KeepSpace: true, Usage: "stop after this `TEXT`; may be repeated"},
			&cli.Uint64Flag{Name: "seed", Usage: "seed of all draws"},
			&cli.BoolFlag{Name: "ignore-eos", Usage: "go on after end-of-sequence tokens"},
			&cli.BoolFlag{Name: "stream", Usage: "a line for every piece of a reply as it is drawn"},
			&cli.IntFlag{Name: "batch", Value: 32, Usage: "rows that decode together"}),
		Action: generate,
	}
}

func generate(c *cli.Context) error {
	sampling, err := samplingFlags(c)
	if err != nil {
		return err
	}
	job, err := openPrompts(c, promptUse{generate: true})
	if err != nil {
		return err
	}
	stop, err := job.model.StopIDs(job.tokenizer)
	if err != nil {
		return err
	}
	requests, longest := job.requests(sampling, stop, c.StringSlice("stop"))
	model, _, err := job.model.Load()
	if err != nil {
		return openingError(err)
	}
	defer model.Close()
	engine, err := torch.NewEngine(model, torch.EngineConfig{
		MaxSequences: min(c.Int64("batch"), int64(len(requests))), MaxLength: longest, MaxBatchTokens: 1024,
		PrefixCache: true,
	})
	if err != nil {
		return err
	}
	defer engine.Close()
	return generateRows(c.Context, engine, requests, job.tokenizer, c.Bool("stream"), lines(c.App.Writer))
}

// samplingFlags checks the flags before anything is read or loaded.
func samplingFlags(c *cli.Context) (torch.Sampling, error) {
	s := torch.Sampling{
		Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
		MaxTokens: c.Int("max-tokens"), MinTokens: c.Int("min-tokens"), Seed: c.Uint64("seed"),
		IgnoreEOS: c.Bool("ignore-eos"),
	}
	switch {
	case s.Temperature != 0 && !(s.Temperature >= 1e-4 && s.Temperature <= 1e4):
		return s, Usagef("--temperature must be 0 (greedy) or between 1e-4 and 1e4, got %v", s.Temperature)
	case s.TopK < 0:
		return s, Usagef("--top-k must not be negative, got %d", s.TopK)
	case !(s.TopP > 0 && s.TopP <= 1):
		return s, Usagef("--top-p must be above 0 and at most 1, got %v", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return s, Usagef("--min-p must be between 0 and 1, got %v", s.MinP)
	case s.MaxTokens < 1:
		return s, Usagef("--max-tokens must be at least 1, got %d", s.MaxTokens)
	case s.MinTokens < 0 || s.MinTokens > s.MaxTokens:
		return s, Usagef("--min-tokens must be between 0 and --max-tokens %d, got %d", s.MaxTokens, s.MinTokens)
	case c.Int("batch") < 1:
		return s, Usagef("--batch must be at least 1, got %d", c.Int("batch"))
	case slices.Contains(c.StringSlice("stop"), ""):
		return s, Usagef("--stop must not be empty")
	}
	return s, nil
}

// requests makes one request per row, with the row's index as its id, and gives the length of the longest sequence.
func (p *prompts) requests(sampling torch.Sampling, ids []int32, strings []string) (requests []torch.Request,
	longest int64) {
	for i, row := range p.rows {
		r := torch.Request{ID: uint64(i), Prompt: row.ids, Sampling: sampling, StopIDs: ids, StopStrings: strings}
		r.Sampling.Seed = rowSeed(sampling.Seed, i)
		longest = max(longest, min(int64(len(row.ids)+sampling.MaxTokens), p.model.Shape.MaxPositions))
		requests = append(requests, r)
	}
	return requests, longest
}

// rowSeed keys row i's draws: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014) over the row's place in the
// sequence that the seed starts.
func rowSeed(seed uint64, i int) uint64 {
	z := seed + (uint64(i)+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// generated is one line of output.
type generated struct {
	IDs          []int32   `json:"ids"`
	Text         *string   `json:"text,omitempty"` // absent without a tokenizer
	Logprobs     []float32 `json:"logprobs"`
	FinishReason string    `json:"finish_reason"`
}

// grown is one line of --stream: what is new of a row's reply.
type grown struct {
	Row  int     `json:"row"`
	IDs  []int32 `json:"ids"`
	Text string  `json:"text"`
	Last bool    `json:"last,omitempty"`
}

// generateRows runs all requests and writes their results in the order of the input, each as soon as those before it
// are there; with stream, what is new of any reply as soon as it is drawn instead.
func generateRows(ctx context.Context, engine generation.Engine, requests []torch.Request, tokenizer *chat.Tokenizer,
	stream bool,
	out *json.Encoder) error {
	var words generation.Tokenizer
	if tokenizer != nil {
		words = tokenizer
	}
	driver := generation.New(engine, words)
	var broken error
	write := func(line any) {
		if err := out.Encode(line); err != nil && broken == nil {
			broken = fmt.Errorf("writing results: %w", err)
		}
	}
	for _, r := range requests {
		request := generation.Request{Request: r}
		if stream {
			request.Grown = func(p generation.Piece) {
				write(grown{int(r.ID), slices.Concat([]int32{}, p.Tokens),
					p.Text, p.Last})
			}
		}
		if err := driver.Submit(request); err != nil {
			return err
		}
	}
	results, next := make([]*torch.Output, len(requests)), 0
	return driver.Run(ctx, func(o torch.Output) error {
		results[o.ID] = &o
		for ; !stream && next < len(results) && results[next] != nil; next++ {
			o := results[next]
			line := generated{IDs: o.Tokens, Logprobs: o.Logprobs, FinishReason: o.Finish.String()}
			if tokenizer != nil {
				text := tokenizer.Decode(o.Tokens, true)
				line.Text = &text
			}
			write(line)
		}
		return broken
	})
}
