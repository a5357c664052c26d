package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gyre/envs"
)

// Config has the options of environments that offer the tools of servers.
type Config struct {
	Servers []Server `option:"mcp" doc:"MCP servers whose tools are on offer: [{ command = [\"python3\", \"server.py\"] }, { url = \"http://127.0.0.1:8000/mcp\" }]"`
	Timeout float64  `option:"mcp_timeout" range:"(0,100000]" doc:"seconds that an MCP server may take to start and to answer a call"`
}

// Defaults are those of Config.
var Defaults = Config{Timeout: 20}

// Server is a program that speaks over its standard input and output, or the address of a streamable HTTP server.
type Server struct {
	Command []string `option:"command"`
	URL     string   `option:"url"`
}

// String names the server in errors.
func (s Server) String() string {
	return "MCP server " + cmp.Or(s.URL, strings.Join(s.Command, " "))
}

func (s Server) check() error {
	if (s.URL == "") == (len(s.Command) == 0) {
		return errors.New("expected either command or url")
	}
	if s.URL == "" {
		return nil
	}
	if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("url: expected an address such as http://127.0.0.1:8000/mcp, got %q", s.URL)
	}
	return nil
}

// Tool is what a server says of one of its tools.
type Tool struct {
	Name, Description string
	Schema            map[string]any // of the arguments
	server            int
}

// Set is the servers of one environment. It is used by one goroutine at a time.
type Set struct {
	Tools    []Tool
	config   Config
	sessions []*session // by server; nil = not begun in this episode
}

// proven is the key under which environments share what their servers offer.
type proven struct{ folder, config string }

// Open asks the servers, once for all environments of the process, what they offer. No two tools may have one name, nor
// that of one that is taken.
func Open(config Config, taken ...string) (*Set, error) {
	if len(config.Servers) == 0 {
		return &Set{}, nil
	}
	for i, server := range config.Servers {
		if err := server.check(); err != nil {
			return nil, fmt.Errorf("option mcp.%d: %w", i, err)
		}
	}
	folder, err := os.Getwd() // a relative command is another one elsewhere
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	tools, err := envs.Shared(proven{folder, string(text)}, func() ([]Tool, error) { return config.list() })
	if err != nil {
		return nil, err
	}
	owners := map[string]string{}
	for _, name := range taken {
		owners[name] = "the environment"
	}
	for _, t := range tools {
		server := config.Servers[t.server].String()
		if other, twice := owners[t.Name]; twice {
			return nil, fmt.Errorf("option mcp: %s and %s both have a tool %q: offer one of them", other, server, t.Name)
		}
		owners[t.Name] = server
	}
	return &Set{Tools: tools, config: config, sessions: make([]*session, len(config.Servers))}, nil
}

// mostTools bounds how many tools a server may offer: all of them stand in every prompt.
const mostTools = 256

// list starts each server for as long as it takes to say what it offers.
func (c Config) list() (tools []Tool, err error) {
	for i, server := range c.Servers {
		own, err := c.listOne(server)
		if err != nil {
			return nil, fmt.Errorf("option mcp: %s: %w", server, err)
		}
		for _, t := range own {
			t.server = i
			tools = append(tools, t)
		}
	}
	return tools, nil
}

func (c Config) listOne(server Server) ([]Tool, error) {
	ctx, cancel := c.limit(context.Background())
	defer cancel()
	s, err := begin(ctx, server)
	if err != nil {
		return nil, err
	}
	tools, err := s.tools(ctx)
	if words := s.end(ctx.Err() == nil); err != nil {
		return nil, fmt.Errorf("its list of tools: %w%s", inTime(ctx, err), words)
	}
	return tools, nil
}

// tools asks the server what it offers.
func (s *session) tools(ctx context.Context) (tools []Tool, err error) {
	for t, err := range s.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		schema, isObject := t.InputSchema.(map[string]any)
		switch {
		case len(tools) == mostTools:
			return nil, fmt.Errorf("expected at most %d tools, got more", mostTools)
		case t.Name == "" || !isObject:
			return nil, fmt.Errorf("tool %q: expected a name and a schema that is an object", t.Name)
		}
		tools = append(tools, Tool{Name: t.Name, Description: t.Description, Schema: schema})
	}
	if len(tools) == 0 {
		return nil, errors.New("it has no tools")
	}
	return tools, nil
}

func (c Config) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(c.Timeout*float64(time.Second)),
		fmt.Errorf("no answer within mcp_timeout = %g seconds: %w", c.Timeout, context.DeadlineExceeded))
}

// inTime is an error that came while ctx lasted, or why ctx has ended.
func inTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Call calls a tool. What a server refuses, or does not answer in time, is said to the policy and is not valid. An
// error is a failure of the server.
func (s *Set) Call(ctx context.Context, t Tool, arguments map[string]any) (says string, valid bool, err error) {
	server := s.config.Servers[t.server]
	limited, cancel := s.config.limit(ctx)
	defer cancel()
	open := &s.sessions[t.server]
	if *open == nil {
		if *open, err = begin(limited, server); err != nil {
			return "", false, fmt.Errorf("%s: %w", server, err)
		}
	}
	result, err := (*open).CallTool(limited, &sdk.CallToolParams{Name: t.Name, Arguments: arguments})
	refusal := refused(err)
	switch {
	case err == nil:
		return text(result), !result.IsError, nil
	case refusal != "":
		return "error: " + refusal, false, nil
	}
	late := limited.Err() != nil
	words := (*open).end(!late)
	*open = nil
	if late && ctx.Err() == nil {
		return fmt.Sprintf("error: no answer within %g seconds: stopped, with all that the server held; the next call "+
			"starts it again", s.config.Timeout), false, nil
	}
	return "", false, fmt.Errorf("%s: tool %s: %w%s", server, t.Name, inTime(limited, err), words)
}

// End ends the sessions of an episode. There may be no set.
func (s *Set) End() {
	if s == nil {
		return
	}
	for i, open := range s.sessions {
		if open != nil {
			open.end(true)
			s.sessions[i] = nil
		}
	}
}
