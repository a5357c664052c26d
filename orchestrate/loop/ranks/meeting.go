package ranks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gyre/torch"
)

// meeting is how the address and the token of the rendezvous get from rank 0 to the others.
type meeting interface {
	publish(ctx context.Context, address, token string) error
	find(ctx context.Context) (address, token string, err error)
	close()
}

// meet chooses the way: the environment's own words, the store of torchrun's agent, or a file in a folder that all ranks see.
func (p Place) meet(ctx context.Context, folder string) (meeting, error) {
	switch {
	case p.AgentStore != "":
		host, text, _ := net.SplitHostPort(p.AgentStore)
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("torchrun's store is at %q (MASTER_ADDR, MASTER_PORT): expected a host and a port", p.AgentStore)
		}
		store, closer, err := torch.OpenTCPStore(ctx, host, port, handshake+time.Minute)
		if err != nil {
			return nil, fmt.Errorf("torchrun's store at %s: %w", p.AgentStore, err)
		}
		return &agent{store, closer.Close, "gyre/rendezvous/" + p.Job}, nil
	case p.Address != "" && p.Token == "":
		return nil, fmt.Errorf("ranks meet at %s, but %s is not set: give every rank the same secret in it (of Kubernetes: from a Secret)", p.Address, envToken)
	case p.Address != "":
		return named{p.Address, p.Token}, nil
	case p.Job == "":
		return nil, fmt.Errorf("%s does not say where ranks meet: set %s=HOST:PORT and the same secret %s for every rank, or use torchrun, mpirun, srun or --ranks",
			p.Launcher, envAddress, envToken)
	}
	job := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == 0 {
			return '-'
		}
		return r
	}, p.Job)
	return &file{path: filepath.Join(folder, ".rendezvous-"+p.Launcher+"-"+job)}, nil
}

// agent is the store of torchrun's agent. Others may read it who can reach it: torchrun has no secrets.
type agent struct {
	store torch.Store
	end   func() error
	key   string
}

func (a *agent) publish(ctx context.Context, address, token string) error {
	return a.store.Set(ctx, a.key, []byte(address+" "+token))
}

func (a *agent) find(ctx context.Context) (string, string, error) {
	value, err := a.store.Get(ctx, a.key)
	if err != nil {
		return "", "", fmt.Errorf("waiting for rank 0 at torchrun's store: %w", err)
	}
	address, token, _ := strings.Cut(string(value), " ")
	return address, token, nil
}

func (a *agent) close() { a.end() }

// named is a rendezvous that the environment names.
type named struct{ address, token string }

func (n named) publish(context.Context, string, string) error { return nil }
func (n named) find(context.Context) (string, string, error)  { return n.address, n.token, nil }
func (n named) close()                                        {}

// file is a file that only its owner may read, in a folder that all ranks see.
type file struct {
	path string
	mine bool
}

func (f *file) publish(_ context.Context, address, token string) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	f.mine = true
	fresh := fmt.Sprintf("%s.%d", f.path, os.Getpid())
	os.Remove(fresh) // of an earlier process with this number
	out, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %s\n", address, token)
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(fresh, f.path)
	}
	if err != nil {
		os.Remove(fresh)
	}
	return err
}

func (f *file) find(ctx context.Context) (string, string, error) {
	for {
		text, err := os.ReadFile(f.path)
		if words := strings.Fields(string(text)); err == nil && len(words) == 2 {
			return words[0], words[1], nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", "", err
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("waiting for rank 0 to write %s: %w: do all ranks see this folder (run.output)? Otherwise set %s=HOST:PORT and %s for every rank",
				f.path, context.Cause(ctx), envAddress, envToken)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *file) close() {
	if f.mine {
		os.Remove(f.path)
	}
}

// resolve turns what a configuration says of the network into an address of this machine: an address, the name of an interface, or nothing, which is
// loopback.
func resolve(bind string) (string, error) {
	if bind == "" {
		return "127.0.0.1", nil
	}
	if ip := net.ParseIP(bind); ip != nil {
		if ip.IsUnspecified() {
			return "", fmt.Errorf("fsdp.bind = %q: name the address or the interface that the other ranks reach", bind)
		}
		return bind, nil
	}
	card, err := net.InterfaceByName(bind)
	if err != nil {
		var names []string
		if all, e := net.Interfaces(); e == nil {
			for _, x := range all {
				names = append(names, x.Name)
			}
		}
		return "", fmt.Errorf("fsdp.bind = %q is neither an address nor an interface of this machine, which has %s", bind, strings.Join(names, ", "))
	}
	addresses, err := card.Addrs()
	if err != nil {
		return "", fmt.Errorf("fsdp.bind = %q: %w", bind, err)
	}
	best := ""
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && (best == "" || network.IP.To4() != nil && !strings.Contains(best, ".")) && !network.IP.IsLinkLocalUnicast() {
			best = network.IP.String()
		}
	}
	if best == "" {
		return "", fmt.Errorf("fsdp.bind = %q: this interface has no address", bind)
	}
	return best, nil
}
