package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"gyre/internal/child"
	"gyre/internal/quote"
)

const (
	// politeness is how long a program may take to end by itself once its input is closed.
	politeness = 200 * time.Millisecond
	// farewell is how long an HTTP server may take to let a session go: it matters to nobody.
	farewell = 2 * time.Second

	longestWords = 1000 // shown of a program's standard error, in bytes

	// protocol is the last version in which HTTP servers know sessions, which keep episodes apart.
	protocol = "2025-11-25"
)

// session is a conversation with a server.
type session struct {
	*sdk.ClientSession
	program *program     // nil = behind HTTP
	client  *http.Client // nil = a program
}

// begin starts a program, or a session of an HTTP server.
func begin(ctx context.Context, server Server) (*session, error) {
	s := &session{}
	var way sdk.Transport
	if server.URL != "" {
		s.client = &http.Client{Transport: parting{http.DefaultTransport.(*http.Transport).Clone()}}
		way = &sdk.StreamableClientTransport{Endpoint: server.URL, HTTPClient: s.client, MaxRetries: -1,
			DisableStandaloneSSE: true}
	} else {
		var err error
		if s.program, err = start(server.Command); err != nil {
			return nil, err
		}
		way = &sdk.IOTransport{Reader: s.program, Writer: s.program.input}
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "gyre", Version: "1"},
		&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}}) // it has no folders, samples nothing, asks nobody
	var err error
	s.ClientSession, err = client.Connect(ctx, way, &sdk.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		words := s.end(ctx.Err() == nil)
		return nil, fmt.Errorf("it does not begin a session: %w%s", inTime(ctx, err), words)
	}
	return s, nil
}

// end ends the session, a program with all that it has started. A polite end lets the program finish by itself. It
// returns the end of what the program wrote to its standard error, which is whole only now.
func (s *session) end(polite bool) (lastWords string) {
	if s.program != nil {
		s.program.kill(polite)
	}
	if s.ClientSession != nil {
		s.Close() // how it ends says nothing any more
	}
	if s.program == nil {
		s.client.CloseIdleConnections()
		return ""
	}
	s.program.command.Wait() // it has been killed
	if text := s.program.words.After(""); text != "" {
		return "; its last words: " + quote.End(text, longestWords)
	}
	return ""
}

// program is a server that is talked to over its standard input and output. It reads as its output.
type program struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  io.Reader
	words   *child.LastWords
	ended   chan struct{} // closed when its output has
	once    sync.Once
}

func start(command []string) (*program, error) {
	p := &program{command: exec.Command(command[0], command[1:]...), words: child.KeepWords(2 * longestWords),
		ended: make(chan struct{})}
	p.command.Env = os.Environ()
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts ends with it
	p.command.WaitDelay = time.Second                           // for pipes that something else keeps open
	p.command.Stderr = p.words
	var err error
	if p.input, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	if p.output, err = p.command.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.command.Start()
}

func (p *program) Read(b []byte) (int, error) {
	n, err := p.output.Read(b)
	if err != nil {
		p.once.Do(func() { close(p.ended) })
	}
	return n, err
}

// Close leaves the output open: kill ends it, and waits for its end.
func (p *program) Close() error { return nil }

// kill ends the program and its group. Whoever calls it waits for the program.
func (p *program) kill(polite bool) {
	p.input.Close()
	if polite {
		patience := time.NewTimer(politeness)
		defer patience.Stop()
		select {
		case <-p.ended:
		case <-patience.C:
		}
	}
	syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL) // the id is still the program's: nobody has waited for it
}

// parting bounds how long the end of a session waits for its server.
type parting struct{ *http.Transport }

func (p parting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		ctx, cancel := context.WithTimeout(r.Context(), farewell)
		defer cancel()
		r = r.WithContext(ctx)
	}
	return p.Transport.RoundTrip(r)
}
