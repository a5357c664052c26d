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
	model, _, err := job.model.Load()
	if err != nil {
		return openingError(err)
	}
	defer model.Close()
	return scoreRows(c.Context, model, job.rows, c.Float64("temperature"), lines(c.App.Writer))
}

type scored struct {
	IDs      []int32    `json:"ids"`
	Logprobs []*float32 `json:"logprobs"`
}

// scoreRows writes a line for each row.
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
			return fmt.Errorf("%s to %s: %w", rows[0].at, rows[n-1].at, err)
		}
		for s, ids := range seqs {
			logprobs := make([]*float32, len(ids)) // the first token has none
			for t := 1; t < len(ids); t++ {
				logprobs[t] = &scores.Logprobs[batch.Offsets[s]+int64(t)]
			}
			if err := write(out, scored{ids, logprobs}); err != nil {
				return err
			}
		}
		rows = rows[n:]
	}
	return nil
}
