package remote

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// host is what the environments of one set of options share: the connection to a server, or the processes of a command.
type host struct {
	options *options
	server  *server // with option url

	mu        sync.Mutex // guards what follows
	processes []*process // with option command: those that are in use; nil where none is
	next      int        // place in processes of the environment that connects next
}

// newHost checks what the options name. Nothing is started or asked yet.
func newHost(o *options) (*host, error) {
	h := &host{options: o}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.URL == "" {
		h.processes = make([]*process, o.Processes)
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
	if h.server != nil {
		return h.server
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	place := &h.processes[h.next%len(h.processes)]
	h.next++
	if *place == nil {
		*place = newProcess(h.options.Command, h.options.MaxBytes)
	}
	(*place).users++
	return *place
}

// disconnect gives up what connect gave. A process that has no environments any more ends.
func (h *host) disconnect(line transport) {
	p, ok := line.(*process)
	if !ok || !h.leave(p) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop()
}

// leave says whether the last environment of a process has left.
func (h *host) leave(p *process) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.users--; p.users > 0 {
		return false
	}
	h.processes[slices.Index(h.processes, p)] = nil
	return true
}
