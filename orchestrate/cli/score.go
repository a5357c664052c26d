package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/torch"
)

// scoreBatchTokens bounds the rows that are scored in one forward pass.
const scoreBatchTokens = 4096

func scoreCommand() *cli.Command {
	return &cli.Command{
		Name:  "score",
		Usage: "log-probs of given tokens: JSONL in, JSONL out",
		Description: `echo '{"text": "The capital of France is Paris."}' |
  gyre score --model models/smollm2-135m-instruct

Rows are {"ids": […]}, {"text": "…"} or {"messages": […]}; those given as ids
need no tokenizer files. Each gives {"ids": […], "logprobs": [null, …]}: the
log-prob of every token given those before it. A conversation that does not
end with the assistant is followed by the template's generation prompt.`,
		Flags: append(promptFlags(),
			&cli.Float64Flag{Name: "temperature", Value: 1, Usage: "divide the logits by `T`"}),
		Action: score,
	}
}

func score(c *cli.Context) error {
	if t := c.Float64("temperature"); !(t >= 1e-4 && t <= 1e4) {
		return Usagef("--temperature must be between 1e-4 and 1e4, got %v", t)
	}
	job, err := openPrompts(c, promptUse{})
	if err != nil {
		return err
	}
	model, _, err := job.model.Load()
	if err != nil {
		return openingError(err)
	}
	defer model.Close()
	return scoreRows(c.Context, model, job.rows, c.Float64("temperature"), lines(c.App.Writer))
}

// scored is one line of output.
type scored struct {
	IDs      []int32    `json:"ids"`
	Logprobs []*float32 `json:"logprobs"` // the first token has none
}

func scoreRows(ctx context.Context, model *torch.Model, rows []promptRow, temperature float64,
	out *json.Encoder) error {
	for len(rows) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, tokens := 0, 0
		var seqs [][]int32
		for n < len(rows) && (n == 0 || tokens+len(rows[n].ids) <= scoreBatchTokens) {
			seqs = append(seqs, rows[n].ids)
			tokens += len(rows[n].ids)
			n++
		}
		batch := torch.Pack(seqs, nil)
		scores, err := model.Score(batch, temperature, false)
		if err != nil {
			return fmt.Errorf("lines %d to %d: %w", rows[0].line, rows[n-1].line, err)
		}
		for s, ids := range seqs {
			line := scored{IDs: ids, Logprobs: make([]*float32, len(ids))}
			for t := 1; t < len(ids); t++ {
				line.Logprobs[t] = &scores.Logprobs[batch.Offsets[s]+int64(t)]
			}
			if err := out.Encode(line); err != nil {
				return fmt.Errorf("writing results: %w", err)
			}
		}
		rows = rows[n:]
	}
	return nil
}
