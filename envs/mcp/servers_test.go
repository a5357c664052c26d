package mcp

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// patience is a limit that no test waits for.
const patience = 100

// call calls a tool that must not fail, and holds what it says against the beginning of a text.
func call(t *testing.T, s *Set, name string, arguments map[string]any, want string, valid bool) {
	t.Helper()
	says, got, err := s.Call(t.Context(), tool(t, s, name), arguments)
	if err != nil || got != valid || !strings.Contains(says, want) {
		t.Errorf("%s(%v) says %q, valid %v, error %v; want %q, %v", name, arguments, says, got, err, want, valid)
	}
}

func tool(t *testing.T, s *Set, name string) Tool {
	t.Helper()
	for _, tool := range s.Tools {
		if tool.Name == name {
			return tool
		}
	}
	t.Fatalf("no tool %s among %+v", name, s.Tools)
	return Tool{}
}

// What both kinds of servers do in an episode: tools keep state to its end, refuse, hang and die.
func TestEpisodes(t *testing.T) {
	for name, server := range map[string]Server{"stdio": {Command: self(t, "stdio")}, "http": {URL: overHTTP(t)}} {
		t.Run(name, func(t *testing.T) {
			config := Config{Servers: []Server{server}, Timeout: patience}
			s, err := Open(config)
			if err != nil {
				t.Fatal(err)
			}
			other, err := Open(config)
			if err != nil {
				t.Fatal(err)
			}
			defer s.End()
			defer other.End()
			add := tool(t, s, "add")
			if properties, _ := add.Schema["properties"].(map[string]any); len(s.Tools) != 5 || properties["b"] == nil ||
				add.Description != "Adds." || s.sessions[0] != nil {
				t.Errorf("offered: %+v", s.Tools)
			}
			call(t, s, "count", nil, "1", true)
			call(t, s, "count", nil, "2", true)
			call(t, other, "count", nil, "1", true) // another episode, meanwhile
			s.End()
			call(t, s, "count", nil, "1", true)
			call(t, s, "add", map[string]any{"a": 2, "b": 3}, "5", true)
			call(t, s, "add", map[string]any{"a": "x", "b": 3}, "error: ", false)
			call(t, s, "add", map[string]any{"a": -1, "b": 3}, "error: a is negative", false)
			call(t, s, "picture", nil, "a cat\n[image of type image/png and 5 bytes, which is not shown]\n"+
				"[link to the resource file:///cat]", true)
			call(t, s, "count", nil, "2", true) // no refusal has ended the session

			hung := s.sessions[0]
			s.config.Timeout = 0.05
			call(t, s, "hang", nil, "error: no answer within 0.05 seconds", false)
			if hung.program != nil && !errors.Is(syscall.Kill(hung.program.command.Process.Pid, 0), syscall.ESRCH) {
				t.Error("the program that hung still runs")
			}
			s.config.Timeout = patience
			call(t, s, "count", nil, "1", true)

			_, valid, err := s.Call(t.Context(), tool(t, s, "die"), nil)
			if valid || err == nil || !strings.HasPrefix(err.Error(), server.String()+": tool die: ") {
				t.Errorf("a server that dies: %v", err)
			}
			if server.URL == "" && !strings.Contains(err.Error(), `its last words: "the disk is full`) {
				t.Errorf("no last words: %v", err)
			}
			if server.URL == "" {
				call(t, s, "count", nil, "1", true) // it can be started again
			}
		})
	}
}

// A call ends with what it is a part of, and that is no answer to the policy.
func TestInterrupted(t *testing.T) {
	s, err := Open(Config{Servers: []Server{{Command: self(t, "stdio")}}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer s.End()
	call(t, s, "count", nil, "1", true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Call(ctx, tool(t, s, "hang"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the cancellation", err)
	}
}

func TestRefusedAtTheStart(t *testing.T) {
	stdio := Server{Command: self(t, "stdio")}
	for want, config := range map[string]Config{
		`both have a tool "add"`: {Servers: []Server{stdio, stdio}},
		`no licence`:             {Servers: []Server{{Command: self(t, "broken")}}},
		`no-such-program`:        {Servers: []Server{{Command: []string{"no-such-program"}}}},
		`option mcp.1: expected either command or url`:     {Servers: []Server{stdio, {}}},
		`expected an address such as`:                      {Servers: []Server{{URL: "localhost:80"}}},
		`MCP server http://127.0.0.1:1/mcp: it does not b`: {Servers: []Server{{URL: "http://127.0.0.1:1/mcp"}}},
	} {
		config.Timeout = patience
		if _, err := Open(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	if _, err := Open(Config{Servers: []Server{stdio}, Timeout: patience}, "add"); err == nil ||
		!strings.HasPrefix(err.Error(), "option mcp: the environment and MCP server "+os.Args[0][:1]) {
		t.Errorf("a name that is taken: %v", err)
	}
}
