package tools

import (
	"context"
	"math"
	"strconv"
	"strings"

	"gyre/envs/arithmetic"
	"gyre/envs/sandbox"
)

func calculator() Tool {
	grammar := arithmetic.Grammar{Decimals: true, Powers: true}
	return Tool{
		Name: "calculator", Description: "Computes an arithmetic expression.", Argument: "expression",
		Meaning: "numbers with + - * / ** and parentheses",
		Use: func(_ context.Context, expression string) (string, error) {
			value, err := grammar.Evaluate(expression)
			if err != nil {
				return "error: " + err.Error(), nil
			}
			if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
				return strconv.FormatFloat(value, 'f', -1, 64), nil
			}
			return strconv.FormatFloat(value, 'g', 15, 64), nil
		},
	}
}

// python runs programs in the sandbox. Every call starts afresh.
func python(box *sandbox.Sandbox, most int) Tool {
	return Tool{
		Name: "python", Description: "Runs a Python program and returns what it prints and the value of its last line.",
		Argument: "code",
		Meaning:  "the program",
		Use: func(ctx context.Context, code string) (string, error) {
			outcomes, err := box.Run(ctx, sandbox.Job{Program: code, Echo: true})
			if err != nil {
				return "", err
			}
			o := outcomes[0]
			text := strings.TrimRight(o.Stdout, "\n")
			if len(text) > most {
				text = strings.ToValidUTF8(text[:most], "") + "\n… (cut off)"
			}
			switch {
			case o.Status == sandbox.Failed:
				text += "\nerror: " + o.Error
			case o.Status != sandbox.OK:
				text += "\nerror: stopped (" + string(o.Status) + ")"
			}
			if text = strings.TrimPrefix(text, "\n"); text == "" {
				text = "(no output)"
			}
			return text, nil
		},
	}
}
