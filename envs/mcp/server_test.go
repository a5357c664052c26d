package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// serves, as first argument, makes the test binary a server: over stdin and stdout, or with a second argument "http".
const serves = "serve-mcp"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != serves {
		os.Exit(m.Run())
	}
	switch strings.Join(os.Args[2:], " ") {
	case "stdio":
		newServer().Run(context.Background(), &sdk.StdioTransport{})
	case "http":
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Printf("http://%s\n", listener.Addr())
		go http.Serve(listener, sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return newServer() }, nil))
		io.Copy(io.Discard, os.Stdin) // until the test ends
	case "broken":
		fmt.Fprintln(os.Stderr, "no licence")
		os.Exit(1)
	}
}

type nothing struct{}

// newServer has tools that count, add, show pictures, hang and die. Its count is that of one session.
func newServer() *sdk.Server {
	server, count := sdk.NewServer(&sdk.Implementation{Name: "odd", Version: "1"}, nil), 0
	type pair struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	say := func(text string) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
	}
	sdk.AddTool(server, &sdk.Tool{Name: "count", Description: "Counts its calls."},
		func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
			count++
			return say(fmt.Sprint(count))
		})
	sdk.AddTool(server, &sdk.Tool{Name: "add", Description: "Adds."},
		func(_ context.Context, _ *sdk.CallToolRequest, in pair) (*sdk.CallToolResult, any, error) {
			if in.A < 0 {
				return nil, nil, errors.New("a is negative")
			}
			return say(fmt.Sprint(in.A + in.B))
		})
	sdk.AddTool(server, &sdk.Tool{Name: "picture"},
		func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "a cat"},
				&sdk.ImageContent{MIMEType: "image/png", Data: []byte("12345")},
				&sdk.ResourceLink{URI: "file:///cat", Name: "cat"}}}, nil, nil
		})
	sdk.AddTool(server, &sdk.Tool{Name: "hang"},
		func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) { select {} })
	sdk.AddTool(server, &sdk.Tool{Name: "die"},
		func(context.Context, *sdk.CallToolRequest, nothing) (*sdk.CallToolResult, any, error) {
			fmt.Fprintln(os.Stderr, "the disk is full")
			os.Exit(3)
			return nil, nil, nil
		})
	return server
}

// self is this binary as a server over stdin and stdout.
func self(t *testing.T, how string) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, serves, how}
}

// overHTTP starts this binary as an HTTP server and gives its address.
func overHTTP(t *testing.T) string {
	t.Helper()
	command := self(t, "http")
	server := exec.Command(command[0], command[1:]...)
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close(); server.Wait() })
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
