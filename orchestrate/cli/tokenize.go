package cli

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint"
)

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
		ids, err = t.Encode(*row.text, true)
	case row.text != nil:
		ids, err = t.EncodeMarkup(*row.text)
	case row.messages != nil:
		ids, err = t.EncodeMessages(row.messages, row.open())
	default:
		err = errors.New("expected text or messages, got ids: use --decode to turn ids into text")
	}
	return map[string][]int32{"ids": append([]int32{}, ids...)}, err
}

// decodeRow turns {"ids": …} into {"text": …}.
func decodeRow(t *chat.Tokenizer, line []byte, special bool) (any, error) {
	var row struct{ IDs *[]int32 }
	if err := json.Unmarshal(line, &row); err != nil {
		return nil, fmt.Errorf("not a row of {\"ids\": […]}: %w", err)
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
