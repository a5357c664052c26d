package ranks

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gyre/torch"
)

// rendezvous is the store in which the ranks of a run find each other, and tell each other of failures.
type rendezvous struct {
	address string       // for messages
	keys    *torch.Store // of this package
	groups  *torch.Store // of process groups, which keep a connection to themselves while they wait
	prefix  string       // of all keys of this launch: several may have one store
	ofZero  bool         // rank 0 serves it
	owned   bool         // it ends with this process
	closers []func()
}

// file begins the address of a store in a file.
const file = "file:"

// openRendezvous opens the store that the place leads to. Where the place names no address, rank 0 makes a store and
// leaves its address in the folder, which all ranks see; the others wait for that until the context ends.
func openRendezvous(ctx context.Context, p Place, bind, folder string) (*rendezvous, error) {
	r := &rendezvous{address: cmp.Or(p.AgentStore, p.Address), prefix: fmt.Sprintf("gyre/%s/%s/", p.Job, p.Token)}
	published := filepath.Join(folder, ".rendezvous-"+p.Launcher+"-"+strings.ReplaceAll(p.Job, "/", "-"))
	var err error
	switch {
	case r.address != "":
	case p.Job == "":
		return nil, fmt.Errorf("%s does not say where ranks meet: set %s=HOST:PORT for every rank, or use torchrun, "+
			"mpirun, srun or --ranks", p.Launcher, envAddress)
	case p.Rank > 0:
		var token string
		r.address, token, err = findPublished(ctx, published)
		r.prefix += token
	case p.OneMachine():
		var remove func()
		r.address, remove, err = newFileStore()
		r.closers = append(r.closers, remove)
		r.owned = true
	default:
		r.address = net.JoinHostPort(bind, "0")
	}
	if err == nil {
		err = r.connect(ctx, p, bind)
	}
	if err == nil && p.Rank == 0 && p.Address == "" && p.AgentStore == "" {
		err = r.publish(published)
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("the rendezvous: %w", err)
	}
	return r, nil
}

// connect opens the store at the address. One at a port is served by rank 0, unless an agent of torchrun does.
func (r *rendezvous) connect(ctx context.Context, p Place, bind string) (err error) {
	if path, ok := strings.CutPrefix(r.address, file); ok {
		r.keys, err = torch.OpenFileStore(path)
		if err == nil {
			r.groups, err = torch.OpenFileStore(path)
		}
		return err
	}
	_, port, err := net.SplitHostPort(r.address)
	if err != nil {
		return fmt.Errorf("the address is %q, expected HOST:PORT", r.address)
	}
	r.ofZero = p.AgentStore == ""
	address := r.address
	var listener net.Listener
	if r.owned = r.ofZero && p.Rank == 0; r.owned {
		if listener, err = net.Listen("tcp", net.JoinHostPort(bind, port)); err != nil {
			return err
		}
		defer listener.Close()
		address = listener.Addr().String()
		if port == "0" {
			r.address = address
		}
	}
	patience := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(time.Until(deadline), time.Millisecond)
	}
	if r.keys, err = torch.OpenTCPStore(address, listener, patience); err == nil {
		r.groups, err = torch.OpenTCPStore(address, nil, patience)
	}
	return err
}

// publish leaves address and token, by which the keys of this launch are known, where only this user can read them.
func (r *rendezvous) publish(path string) error {
	token := rand.Text()
	r.prefix += token
	r.closers = append(r.closers, func() { os.Remove(path) })
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".") // mode 0600
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, r.address, token)
	return errors.Join(err, f.Close(), os.Rename(f.Name(), path))
}

func findPublished(ctx context.Context, path string) (address, token string, err error) {
	for {
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = fmt.Sscan(string(text), &address, &token)
			return address, token, err
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", "", err
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("waiting for rank 0 to write %s: %w: do all ranks see this folder "+
				"(run.output)? Otherwise set %s=HOST:PORT for every rank", path, context.Cause(ctx), envAddress)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// newFileStore is the address of a store for this machine, in a folder that only this user can open.
func newFileStore() (address string, remove func(), err error) {
	folder, err := os.MkdirTemp("", "gyre-ranks-")
	return file + filepath.Join(folder, "store"), func() { os.RemoveAll(folder) }, err
}

func (r *rendezvous) close() {
	r.groups.Close()
	r.keys.Close()
	for _, end := range r.closers {
		end()
	}
}

// get waits for a key until the context ends.
func (r *rendezvous) get(ctx context.Context, key string, value any) error {
	text, err := r.keys.Get(ctx, r.prefix+key)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// find is get for what may not be there.
func (r *rendezvous) find(key string, value any) (found bool, err error) {
	text, err := r.keys.Find(r.prefix + key)
	if err != nil || text == nil {
		return false, err
	}
	return true, json.Unmarshal(text, value)
}

// claim sets a key that nobody has set, and gives what it then holds: the first claim counts.
func claim[T any](r *rendezvous, key string, mine T) (held T, err error) {
	text, err := json.Marshal(mine)
	if err == nil {
		text, err = r.keys.Claim(r.prefix+key, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &held)
	}
	return held, err
}

// report tells the run of a failure, and gives the one that it ends with: the first that anybody has reported.
func (r *rendezvous) report(f *Failure) *Failure {
	return within(answerTime, f, func() *Failure {
		if first, err := claim(r, keyFailure, *f); err == nil {
			return &first
		}
		return f
	})
}

// within is what f returns, or late when that takes too long: a store whose process was stopped answers nothing.
func within[T any](limit time.Duration, late T, f func() T) T {
	result := make(chan T, 1)
	go func() { result <- f() }() // ends when the store answers, or gives up after its own time
	select {
	case x := <-result:
		return x
	case <-time.After(limit):
		return late
	}
}

// resolve turns fsdp.bind into an address of this machine: an address, the name of an interface, or nothing, which is
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
	all, err := net.Interfaces()
	var names []string
	for _, card := range all {
		names = append(names, card.Name)
		if card.Name != bind {
			continue
		}
		addresses, err := card.Addrs()
		best := ""
		for _, a := range addresses {
			ip := a.(*net.IPNet).IP
			if !ip.IsLinkLocalUnicast() && (best == "" || ip.To4() != nil) {
				best = ip.String()
			}
		}
		if best == "" {
			return "", fmt.Errorf("fsdp.bind = %q: this interface has no address (%v)", bind, err)
		}
		return best, nil
	}
	return "", errors.Join(err, fmt.Errorf("fsdp.bind = %q is neither an address nor an interface of this machine, "+
		"which has %s", bind, strings.Join(names, ", ")))
}
