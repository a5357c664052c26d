package ranks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

// rendezvous is the store in which the ranks of a run find each other.
type rendezvous struct {
	address string       // for messages
	keys    *torch.Store // of this package
	groups  *torch.Store // of process groups, which keep a connection to themselves while they wait
	prefix  string       // of all keys of this run
	ofZero  bool         // rank 0 serves it
	owned   bool         // it ends with this process
	closers []func()
}

// prefixOf keeps the keys of a launch from those of others in one store.
func prefixOf(p Place) string { return fmt.Sprintf("gyre/%s/%s/", p.Job, p.Token) }

func (r *rendezvous) close() {
	r.groups.Close()
	r.keys.Close()
	for _, end := range r.closers {
		end()
	}
}

// file begins the address of a store in a file.
const file = "file:"

// openRendezvous opens the store that the place leads to. Ranks wait for the one that makes it until the context ends.
func openRendezvous(ctx context.Context, p Place, bind, folder string) (*rendezvous, error) {
	r := &rendezvous{address: p.Address, prefix: prefixOf(p)}
	var listener *net.TCPListener
	var err error
	switch {
	case p.AgentStore != "": // torchrun's agent serves it
		r.address = p.AgentStore
	case p.Address != "":
		r.ofZero = !strings.HasPrefix(p.Address, file)
		if _, port, e := net.SplitHostPort(p.Address); p.Rank == 0 && r.ofZero {
			listener, err = listen(bind, port)
			err = errors.Join(e, err)
		}
	case p.Job == "":
		return nil, fmt.Errorf("%s does not say where ranks meet: set %s=HOST:PORT for every rank, or use torchrun, "+
			"mpirun, srun or --ranks", p.Launcher, envAddress)
	case p.Rank == 0:
		listener, err = r.publish(p, bind, folder)
	default:
		var token string
		r.address, token, err = findPublished(ctx, published(p, folder))
		r.prefix += token
		r.ofZero = !strings.HasPrefix(r.address, file)
	}
	if err == nil {
		err = r.open(ctx, listener)
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("the rendezvous: %w", err)
	}
	return r, nil
}

// open connects to the store at r.address, or serves it on a listener.
func (r *rendezvous) open(ctx context.Context, listener *net.TCPListener) (err error) {
	if path, ok := strings.CutPrefix(r.address, file); ok {
		r.keys, err = torch.OpenFileStore(path)
		if err == nil {
			r.groups, err = torch.OpenFileStore(path)
		}
		return err
	}
	host, text, err := net.SplitHostPort(r.address)
	port, e := strconv.Atoi(text)
	if err != nil || e != nil {
		return fmt.Errorf("the address is %q, expected HOST:PORT", r.address)
	}
	patience := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(time.Until(deadline), time.Millisecond)
	}
	var socket *os.File
	if listener != nil {
		defer listener.Close()
		if socket, err = listener.File(); err != nil {
			return err
		}
		defer socket.Close()
		r.owned = true
		host = listener.Addr().(*net.TCPAddr).IP.String()
	}
	if r.keys, err = torch.OpenTCPStore(host, port, socket, patience); err == nil {
		r.groups, err = torch.OpenTCPStore(host, port, nil, patience)
	}
	return err
}

func listen(bind, port string) (*net.TCPListener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(bind, port))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// newFileStore is the address of a store for this machine, in a folder that only this user can open.
func newFileStore() (address string, remove func(), err error) {
	folder, err := os.MkdirTemp("", "gyre-ranks-")
	if err != nil {
		return "", nil, err
	}
	return file + filepath.Join(folder, "store"), func() { os.RemoveAll(folder) }, nil
}

// published is the file in which rank 0 leaves address and token, in a folder that all ranks see.
func published(p Place, folder string) string {
	job := strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r == 0 {
			return '-'
		}
		return r
	}, p.Job)
	return filepath.Join(folder, ".rendezvous-"+p.Launcher+"-"+job)
}

// publish makes a store, in a file where all ranks are on this machine, and writes where it is to a file that only
// this user can read.
func (r *rendezvous) publish(p Place, bind, folder string) (listener *net.TCPListener, err error) {
	if p.Alone() {
		var remove func()
		if r.address, remove, err = newFileStore(); err != nil {
			return nil, err
		}
		r.closers = append(r.closers, remove)
		r.owned = true
	} else {
		if listener, err = listen(bind, "0"); err != nil {
			return nil, err
		}
		r.address = listener.Addr().String()
	}
	token := newToken()
	r.prefix += token
	path := published(p, folder)
	if err = os.MkdirAll(folder, 0o755); err == nil {
		err = writePrivate(path, r.address+" "+token+"\n")
	}
	if err != nil && listener != nil {
		listener.Close()
	}
	r.closers = append(r.closers, func() { os.Remove(path) })
	return listener, err
}

// writePrivate replaces a file at once by one that only this user can read.
func writePrivate(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

func findPublished(ctx context.Context, path string) (address, token string, err error) {
	for {
		text, err := os.ReadFile(path)
		if words := strings.Fields(string(text)); err == nil && len(words) == 2 {
			return words[0], words[1], nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", "", err
		}
		select {
		case <-ctx.Done():
			return "", "", fmt.Errorf("waiting for rank 0 to write %s: %w: do all ranks see this folder "+
				"(run.output)? Otherwise set %s=HOST:PORT for every rank",
				path, context.Cause(ctx), envAddress)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// newToken tells the keys of one run from those of others.
func newToken() string {
	token := make([]byte, 16)
	rand.Read(token) // never fails
	return hex.EncodeToString(token)
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
	card, err := net.InterfaceByName(bind)
	if err != nil {
		var names []string
		all, _ := net.Interfaces()
		for _, x := range all {
			names = append(names, x.Name)
		}
		return "", fmt.Errorf("fsdp.bind = %q is neither an address nor an interface of this machine, which has %s",
			bind, strings.Join(names, ", "))
	}
	addresses, err := card.Addrs()
	best := ""
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if ok && !network.IP.IsLinkLocalUnicast() && (best == "" || network.IP.To4() != nil && !strings.Contains(best,
			".")) {
			best = network.IP.String()
		}
	}
	if best == "" {
		return "", fmt.Errorf("fsdp.bind = %q: this interface has no address (%v)", bind, err)
	}
	return best, nil
}
