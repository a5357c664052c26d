package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"gyre/envs/reward"
	"gyre/internal/dataset"
	"gyre/internal/quote"
)

func gradeCommand() *cli.Command {
	return &cli.Command{
		Name: "grade", Usage: "judge answers of mathematics: JSONL in, JSONL out",
		Flags: []cli.Flag{
			withDefault("mode", string(reward.Strict), "strict or lenient"),
			text("function", "call `NAME` instead of grading"),
			inputFlag(),
			text("audit", "grade the answers of the data set in `FILE`"),
		},
		Action: func(c *cli.Context) error {
			mode, err := reward.ParseMode(c.String("mode"))
			if err != nil {
				return Usagef("--mode: %w", err)
			}
			if path := c.String("audit"); path != "" {
				return audit(c, path, mode)
			}
			return eachRow(c, func(line []byte) (any, error) { return gradeRow(line, mode, c.String("function")) })
		},
	}
}

// gradeRow judges one line, or calls the function that it or the command line names.
func gradeRow(line []byte, mode reward.Mode, function string) (any, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", quote.JSON(err))
	}
	if own, given := fields["function"]; given {
		if json.Unmarshal(own, &function) != nil || function == "" {
			return nil, fmt.Errorf("function: expected a name, got %s", excerpt(own))
		}
	}
	if function != "" {
		return callRow(line, function, fields["id"])
	}
	_, isPred := fields["pred"]
	_, isResponse := fields["response"]
	if isPred == isResponse {
		return nil, fmt.Errorf("expected gold and either pred or response, got %q", slices.Sorted(maps.Keys(fields)))
	}
	key, judge := "pred", reward.GradeAnswer
	if isResponse {
		key, judge = "response", reward.GradeReply
	}
	gold, err := textField(fields, "gold")
	if err != nil {
		return nil, err
	}
	answer, err := textField(fields, key)
	return struct {
		ID json.RawMessage `json:"id,omitempty"`
		reward.Verdict
	}{fields["id"], judge(answer, gold, mode)}, err
}

// textField reads a string; a number stands for its digits, as in a data set.
func textField(fields map[string]json.RawMessage, key string) (value string, err error) {
	raw, given := fields[key]
	if !given {
		return "", fmt.Errorf("expected %s, got %q", key, slices.Sorted(maps.Keys(fields)))
	}
	var number json.Number
	switch {
	case string(raw) == "null":
	case json.Unmarshal(raw, &value) == nil:
		return value, nil
	case json.Unmarshal(raw, &number) == nil:
		return dataset.Answer(number)
	}
	return "", fmt.Errorf("%s: expected a string, got %s", key, excerpt(raw))
}

func callRow(line []byte, function string, id json.RawMessage) (any, error) {
	var arguments reward.Arguments
	if err := json.Unmarshal(line, &arguments); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", function, quote.JSON(err))
	}
	result := struct {
		ID    json.RawMessage `json:"id,omitempty"`
		Value any             `json:"value"`
		Error string          `json:"error,omitempty"`
	}{ID: id}
	value, err := reward.Call(function, arguments)
	if raised, ok := errors.AsType[*reward.Exception](err); ok {
		result.Error = raised.Error()
		return result, nil
	}
	result.Value = value
	return result, err
}

// audit says which answers of a data set a grader has to be careful with.
func audit(c *cli.Context, path string, mode reward.Mode) error {
	set, err := dataset.Load(path, dataset.Fields{})
	if err != nil {
		return Usagef("--audit: %w", err)
	}
	type finding struct {
		Row  int    `json:"row"`
		ID   string `json:"id"`
		Gold string `json:"answer"`
		// Verbatim is the seed's score of a word-for-word reply: 0 where its grader leaves the gold answer alone.
		Verbatim any `json:"compute_correctness_score"`
		reward.Verdict
	}
	var summary struct {
		Rows      int `json:"rows"`
		Scored    int `json:"scored"`
		Rewritten int `json:"rewritten_by_rules"`
		Seed      int `json:"scored_by_compute_correctness_score"`
	}
	results := lines(c.App.Writer)
	for _, row := range set.Rows {
		reply := `\boxed{` + row.Gold + `}`
		f := finding{Row: row.Index, ID: row.ID, Gold: row.Gold, Verdict: reward.GradeReply(reply, row.Gold, mode)}
		f.Verbatim, err = reward.Call("compute_correctness_score", reward.Arguments{Solution: &reply, Truth: row.Gold})
		if err != nil {
			f.Verbatim = err.Error()
		}
		summary.Rows++
		rewritten := f.Normalized == nil || *f.Normalized != row.Gold
		if f.Correct {
			summary.Scored++
		}
		if rewritten {
			summary.Rewritten++
		}
		if f.Verbatim == reward.Float(1) {
			summary.Seed++
		}
		if rewritten || !f.Correct {
			if err := write(results, f); err != nil {
				return err
			}
		}
	}
	if err := write(results, summary); err != nil {
		return err
	}
	if summary.Scored < summary.Rows {
		return fmt.Errorf("%s: %d of %d answers do not score when given back", path, summary.Rows-summary.Scored,
			summary.Rows)
	}
	return nil
}
