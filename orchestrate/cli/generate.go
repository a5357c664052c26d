package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/internal/quote"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

func generateCommand() *cli.Command {
	return &cli.Command{
		Name: "generate", Usage: "continue prompts: JSONL in, JSONL out",
		Flags: slices.Concat(promptFlags(), samplingFlags(), []cli.Flag{
			atLeast(1, "max-tokens", 256, "stop after `N` new tokens"),
			atLeast(0, "min-tokens", 0, "do not stop before `N` new tokens"),
			&cli.StringSliceFlag{Name: "stop", KeepSpace: true, Usage: "stop after this `TEXT`; may be repeated"},
			seedFlag(),
			toggle("ignore-eos", "go on after end-of-sequence tokens"),
			toggle("stream", "a line for every piece of a reply as it is drawn"),
			atLeast(1, "batch", 32, "rows that decode together"),
			atLeast(0, "speculate", 0, "try up to `N` next tokens at once; 0 = off")}),
		Action: generate,
	}
}

func generate(c *cli.Context) error {
	drawn, err := sampling(c)
	if err != nil {
		return err
	}
	job, err := openPrompts(c, true)
	if err != nil {
		return err
	}
	stop, err := job.model.StopIDs(job.tokenizer)
	if err != nil {
		return err
	}
	requests, longest := make([]torch.Request, len(job.rows)), int64(0)
	for i, row := range job.rows {
		drawn.Seed = generation.RowSeed(c.Uint64("seed"), i)
		requests[i] = torch.Request{ID: uint64(i), Prompt: row.ids, Sampling: drawn, StopIDs: stop,
			StopStrings: c.StringSlice("stop")}
		longest = max(longest, min(int64(len(row.ids)+drawn.MaxTokens), job.model.Shape.MaxPositions))
	}
	models, err := job.load()
	if err != nil {
		return err
	}
	defer models.Close()
	for i, row := range job.rows {
		if row.adapter != "" {
			requests[i].Policy = models[row.adapter]
		}
	}
	engine, err := torch.NewEngine(models[""], torch.EngineConfig{
		MaxSequences: min(c.Int64("batch"), int64(len(requests))), MaxLength: longest, MaxBatchTokens: 1024,
		PrefixCache: true, SpeculativeTokens: c.Int64("speculate"),
	})
	if err != nil {
		return err
	}
	defer engine.Close()
	return generateRows(c, engine, requests, job.tokenizer)
}

// sampling is what the flags say, beyond the range that each has by itself.
func sampling(c *cli.Context) (torch.Sampling, error) {
	s := torch.Sampling{
		Temperature: c.Float64("temperature"), TopK: c.Int("top-k"), TopP: c.Float64("top-p"), MinP: c.Float64("min-p"),
		MaxTokens: c.Int("max-tokens"), MinTokens: c.Int("min-tokens"), IgnoreEOS: c.Bool("ignore-eos"),
	}
	switch {
	case s.Temperature > 0 && s.Temperature < 1e-4:
		return s, Usagef("--temperature must be 0 (greedy) or between 1e-4 and 1e4, got %v", s.Temperature)
	case s.MinTokens > s.MaxTokens:
		return s, Usagef("--min-tokens must be between 0 and --max-tokens %d, got %d", s.MaxTokens, s.MinTokens)
	case slices.Contains(c.StringSlice("stop"), ""):
		return s, Usagef("--stop must not be empty")
	}
	return s, nil
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
// are there; with --stream, what is new of any reply as soon as it is drawn instead.
func generateRows(c *cli.Context, engine generation.Engine, requests []torch.Request, tokenizer *chat.Tokenizer) error {
	var words generation.Tokenizer
	if tokenizer != nil {
		words = tokenizer
	}
	driver, out, stream := generation.New(engine, words), lines(c.App.Writer), c.Bool("stream")
	var broken error
	for _, r := range requests {
		request := generation.Request{Request: r}
		if stream {
			request.Grown = func(p generation.Piece) {
				line := grown{int(r.ID), append([]int32{}, p.Tokens...), p.Text, p.Last}
				broken = cmp.Or(broken, write(out, line))
			}
		}
		if err := driver.Submit(request); err != nil {
			return err
		}
	}
	results, next := make([]*torch.Output, len(requests)), 0
	return driver.Run(c.Context, func(o torch.Output) error {
		results[o.ID] = &o
		for ; !stream && next < len(results) && results[next] != nil; next++ {
			o := results[next]
			line := generated{IDs: o.Tokens, Logprobs: o.Logprobs, FinishReason: o.Finish.String()}
			if tokenizer != nil {
				line.Text = new(tokenizer.Said(o.Tokens))
			}
			broken = cmp.Or(broken, write(out, line))
		}
		return broken
	})
}

// scoreBatchTokens bounds the rows that are scored in one forward pass.
const scoreBatchTokens = 4096

func scoreCommand() *cli.Command {
	return &cli.Command{
		Name: "score", Usage: "log-probs of given tokens: JSONL in, JSONL out",
		Flags: append(promptFlags(),
			number("temperature", 1, 1e-4, 1e4, "divide the logits by `T`")),
		Action: score,
	}
}

func score(c *cli.Context) error {
	job, err := openPrompts(c, false)
	if err != nil {
		return err
	}
	models, err := job.load()
	if err != nil {
		return err
	}
	defer models.Close()
	return scoreRows(c.Context, models, job.rows, c.Float64("temperature"), lines(c.App.Writer))
}

type scored struct {
	IDs      []int32    `json:"ids"`
	Logprobs []*float32 `json:"logprobs"`
}

// scoreRows writes a line for each row. Rows of one adapter that stand near each other are scored together.
func scoreRows(ctx context.Context, models policies, rows []promptRow, temperature float64, out *json.Encoder) error {
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, tokens := 0, 0
		members := map[string][]int{} // of the next rows, by adapter
		for n < len(rows) && (n == 0 || tokens+len(rows[n].ids) <= scoreBatchTokens) {
			members[rows[n].adapter] = append(members[rows[n].adapter], n)
			tokens += len(rows[n].ids)
			n++
		}
		results := make([]scored, n)
		for adapter, of := range members {
			if err := scoreTogether(models[adapter], rows, of, temperature, results); err != nil {
				return fmt.Errorf("%s to %s: %w", rows[of[0]].at, rows[of[len(of)-1]].at, err)
			}
		}
		for _, result := range results {
			if err := write(out, result); err != nil {
				return err
			}
		}
		rows = rows[n:]
	}
	return nil
}

// scoreTogether scores those rows that members lists in one forward pass.
func scoreTogether(model *torch.Model, rows []promptRow, members []int, temperature float64, results []scored) error {
	seqs := make([][]int32, len(members))
	for s, i := range members {
		seqs[s] = rows[i].ids
	}
	batch := torch.Pack(seqs, nil)
	found, err := model.Logprobs(batch, temperature)
	if err != nil {
		return err
	}
	for s, ids := range seqs {
		logprobs := make([]*float32, len(ids)) // the first token has none
		for t := 1; t < len(ids); t++ {
			logprobs[t] = &found[batch.Offsets[s]+int64(t)]
		}
		results[members[s]] = scored{ids, logprobs}
	}
	return nil
}

func tokenizeCommand() *cli.Command {
	return &cli.Command{
		Name: "tokenize", Usage: "text to token ids and back: JSONL in, JSONL out",
		Flags: []cli.Flag{
			required("model", "Hugging Face `DIR`, or a tokenizer.json"),
			inputFlag(),
			toggle("decode", "ids to text"),
			toggle("no-special", "no special tokens around texts, none in decoded ones"),
		},
		Action: tokenize,
	}
}

func tokenize(c *cli.Context) error {
	if err := checkpoint.VerifySettings(c.String("model")); err != nil {
		return err
	}
	tokenizer, err := chat.Load(c.String("model"))
	if err != nil {
		return Usagef("--model: %w", err)
	}
	convert := encodeRow
	if c.Bool("decode") {
		convert = decodeRow
	}
	return eachRow(c, func(line []byte) (any, error) { return convert(tokenizer, line, !c.Bool("no-special")) })
}

// encodeRow turns {"text": …} or {"messages": …} into {"ids": …}.
func encodeRow(t *chat.Tokenizer, line []byte, special bool) (any, error) {
	row, err := parsePrompt(line)
	if err != nil {
		return nil, err
	}
	var ids []int32
	switch {
	case row.text != nil && special:
		ids, err = t.EncodeDocument(*row.text)
	case row.text != nil:
		ids, err = t.EncodeMarkup(*row.text)
	case row.messages != nil:
		ids, err = t.EncodeMessages(row.messages, row.open(), row.offer)
	default:
		err = errors.New("expected text or messages, got ids: use --decode to turn ids into text")
	}
	return map[string][]int32{"ids": append([]int32{}, ids...)}, err
}

// decodeRow turns {"ids": …} into {"text": …}.
func decodeRow(t *chat.Tokenizer, line []byte, special bool) (any, error) {
	var row struct{ IDs *[]int32 }
	if err := json.Unmarshal(line, &row); err != nil {
		return nil, fmt.Errorf("not a row of {\"ids\": […]}: %w", quote.JSON(err))
	}
	if row.IDs == nil {
		return nil, errors.New(`expected {"ids": […]}`)
	}
	for i, id := range *row.IDs {
		if t.TokenBytes(id) == nil {
			return nil, fmt.Errorf("token %d is %d, which is not in the vocabulary (ids 0 to %d)", i, id,
				t.VocabSize()-1)
		}
	}
	return map[string]string{"text": t.Decode(*row.IDs, !special)}, nil
}
