package mcp_test

import (
	"os"
	"strings"
	"testing"

	"gyre/envs/envtest"
	_ "gyre/envs/tools"
)

// An environment offers the tools with their schemas, and what they say stands in the episode's messages.
func TestMcpQA(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := envtest.Open(t, "McpQA", map[string]any{"tools": []any{"calculator"}, "mcp_timeout": 100,
		"mcp": []any{map[string]any{"command": []any{path, "serve-mcp", "stdio"}}}})
	for range 2 { // an episode begins with a server of its own
		start, err := env.Reset(t.Context(), 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(start.Tools) != 6 || start.Tools[1].Name != "add" || start.Tools[1].Parameters["properties"] == nil ||
			!strings.Contains(start.Instruction, "tool count") {
			t.Fatalf("tools: %+v", start.Tools)
		}
		r, err := env.Step(t.Context(), `<tool_call>{"name": "count", "arguments": {}}</tool_call>`)
		if err != nil || !r.Valid {
			t.Fatalf("a call: %+v, %v", r, err)
		}
		if m := env.Observe().Messages; len(m) != 1 || m[0].Role != "tool" || m[0].Name != "count" || m[0].Content != "1" {
			t.Errorf("messages: %+v", m)
		}
	}
	if r, err := env.Step(t.Context(), "no number"); err != nil || !r.Done || r.Success {
		t.Errorf("an answer: %+v, %v", r, err)
	}
}

// Making an environment asks no server: a viewer of episodes needs none. Playing without tools, or with a server that
// is not there, fails at once.
func TestStartsWithTheFirstEpisode(t *testing.T) {
	for want, options := range map[string]map[string]any{
		"set the option tools or mcp": nil,
		"no-such-program":             {"mcp": `[{command = ["no-such-program"]}]`}, // as on a command line
	} {
		env := envtest.Open(t, "McpQA", options)
		if _, err := env.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", options, err, want)
		}
	}
}
