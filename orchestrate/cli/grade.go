package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gyre/envs/reward"
	"gyre/internal/dataset"
)

func gradeCommand() *cli.Command {
	return &cli.Command{
		Name:  "grade",
		Usage: "judge answers of mathematics: JSONL in, JSONL out",
		Description: `echo '{"response": "So \\boxed{\\dfrac12}.", "gold": "1/2"}' | gyre grade

Rows are {"pred": "…", "gold": "…"}, or {"response": "…", "gold": "…"} whose
last box is the answer. Each gives {"correct": …, "extracted": …,
"rules": […]} and both sides as they were compared; an "id" is passed on. The
rules are those that changed a side and the one that decided, in order.
strict is the MATH benchmark's textual equality, applied to both sides;
lenient accepts in addition what is provably the same number, expression,
list, interval, set, matrix or relation. --audit gives every answer of a data
set back as \boxed{answer} and prints those that the rules rewrite or that do
not score, and a line of counts.

With --function (or a row's "function"), rows are the arguments of one of the
rldynamic project's functions and each gives {"value": …}, null for None;
where the original raises there is an "error" beside it. Functions:
` + strings.Join(reward.FunctionNames(), "\n"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "mode", Value: string(reward.Strict), Usage: "strict or lenient"},
			&cli.StringFlag{Name: "function", Usage: "call `NAME` instead of grading"},
			inputFlag(),
			&cli.StringFlag{Name: "audit", Usage: "grade the answers of the data set in `FILE`"},
		},
		Action: grade,
	}
}

func grade(c *cli.Context) error {
	if c.NArg() > 0 {
		return Usagef("gyre grade takes no arguments, got %q: rows come from stdin or --input", c.Args().First())
	}
	mode, err := reward.ParseMode(c.String("mode"))
	if err != nil {
		return Usagef("--mode: %w", err)
	}
	if path := c.String("audit"); path != "" {
		return audit(c, path, mode)
	}
	return eachRow(c, func(line []byte) (any, error) { return gradeRow(line, mode, c.String("function")) })
}

// gradeRow judges one line, or calls the function that it or the command line names.
func gradeRow(line []byte, mode reward.Mode, function string) (any, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if own, given := fields["function"]; given {
		if json.Unmarshal(own, &function) != nil || function == "" {
			return nil, fmt.Errorf("function: expected a name, got %s", excerpt(own))
		}
	}
	if function != "" {
		return callRow(line, function, fields["id"])
	}
	given := slices.Sorted(maps.Keys(fields))
	_, isPred := fields["pred"]
	_, isResponse := fields["response"]
	if isPred == isResponse {
		return nil, fmt.Errorf("expected gold and either pred or response, got %q", given)
	}
	gold, err := text(fields, "gold")
	if err != nil {
		return nil, err
	}
	var verdict struct {
		ID json.RawMessage `json:"id,omitempty"`
		reward.Verdict
	}
	verdict.ID = fields["id"]
	if isPred {
		pred, err := text(fields, "pred")
		if err != nil {
			return nil, err
		}
		verdict.Verdict = reward.GradeAnswer(pred, gold, mode)
		return verdict, nil
	}
	response, err := text(fields, "response")
	verdict.Verdict = reward.GradeReply(response, gold, mode)
	return verdict, err
}

// text reads a string; a number stands for its digits.
func text(fields map[string]json.RawMessage, key string) (string, error) {
	raw, given := fields[key]
	if !given {
		return "", fmt.Errorf("expected %s, got %q", key, slices.Sorted(maps.Keys(fields)))
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("%s: expected a string, got %s", key, excerpt(raw))
}

func callRow(line []byte, function string, id json.RawMessage) (any, error) {
	var arguments reward.Arguments
	if err := json.Unmarshal(line, &arguments); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", function, err)
	}
	result := struct {
		ID    json.RawMessage `json:"id,omitempty"`
		Value any             `json:"value"`
		Error string          `json:"error,omitempty"`
	}{ID: id}
	var raised *reward.Exception
	value, err := reward.Call(function, arguments)
	if errors.As(err, &raised) {
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
	for i, row := range set.Rows {
		reply := `\boxed{` + row.Gold + `}`
		f := finding{Row: i, ID: row.ID, Gold: row.Gold, Verdict: reward.GradeReply(reply, row.Gold, mode)}
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
			if err := results.Encode(f); err != nil {
				return fmt.Errorf("writing results: %w", err)
			}
		}
	}
	if err := results.Encode(summary); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	if summary.Scored < summary.Rows {
		return fmt.Errorf("%s: %d of %d answers do not score when given back", path, summary.Rows-summary.Scored,
			summary.Rows)
	}
	return nil
}
