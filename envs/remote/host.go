package remote

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// host is what the environments of one set of options share: the connection to a server, or the processes of a command.
type host struct {
	options *options
	server  *server // with option url

	processes []*process // with option command

	mu    sync.Mutex // guards what follows
	users int        // environments that are connected
	next  int        // place in processes of the environment that connects next
}

// newHost checks what the options name. Nothing is started or asked yet.
func newHost(o *options) (*host, error) {
	h := &host{options: o}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.URL == "" {
		for range o.Processes {
			h.processes = append(h.processes, newProcess(o.Command, o.MaxBytes))
		}
		if _, err := exec.LookPath(o.Command[0]); err != nil {
			return nil, fmt.Errorf("option command: %w", err)
		}
		return h, nil
	}
	token := ""
	if o.Token != "" {
		if token = os.Getenv(o.Token); token == "" {
			return nil, fmt.Errorf("option token_variable: the environment variable %s is empty", o.Token)
		}
	}
	h.server = newServer(strings.TrimRight(o.URL, "/"), token, seconds(o.Attempt), o.MaxBytes)
	return h, nil
}

// connect finds the way to where the next environment lives: the server, or one of the processes in turn.
func (h *host) connect() transport {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
	if h.server != nil {
		return h.server
	}
	h.next++
	return h.processes[h.next%len(h.processes)]
}

// disconnect gives up what connect gave. With the last environment the processes end.
func (h *host) disconnect() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users--; h.users > 0 {
		return
	}
	for _, p := range h.processes {
		p.mu.Lock()
		p.stop()
		p.mu.Unlock()
	}
}
