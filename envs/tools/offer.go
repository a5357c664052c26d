package tools

import (
	"context"
	"math"
	"strconv"
	"strings"

	"gyre/envs/arithmetic"
	"gyre/envs/mcp"
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
			text := cut(strings.TrimRight(o.Stdout, "\n"), most)
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

// served are the tools of MCP servers.
func served(set *mcp.Set, most int) (offered []Tool) {
	for _, t := range set.Tools {
		offered = append(offered, Tool{Name: t.Name, Description: t.Description, Schema: t.Schema,
			Call: func(ctx context.Context, arguments map[string]any) (string, bool, error) {
				says, valid, err := set.Call(ctx, t, arguments)
				return cut(says, most), valid, err
			}})
	}
	return offered
}

// cut is the beginning of a text that is too long.
func cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "\n… (cut off)"
	}
	return text
}
