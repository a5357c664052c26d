package torch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tcpStores are a server of a TCPStore on loopback and a client.
func tcpStores(t *testing.T) (server, client *Store, port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if server, err = OpenTCPStore(l.Addr().String(), l, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	if client, err = OpenTCPStore(l.Addr().String(), nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return server, client, l.Addr().(*net.TCPAddr).Port
}

func TestStores(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store")
	server, client, _ := tcpStores(t)
	for name, pair := range map[string][2]*Store{"file": {openStore(t, path), openStore(t, path)}, "tcp": {server,
		client}} {
		t.Run(name, func(t *testing.T) {
			a, b := pair[0], pair[1]
			if value, err := b.Find("key"); value != nil || err != nil {
				t.Errorf("before it is set: %q, %v", value, err)
			}
			got := make(chan string)
			go func() {
				value, err := b.Get(t.Context(), "key")
				got <- fmt.Sprint(string(value), err)
			}()
			if err := a.Set("key", []byte("value")); err != nil {
				t.Fatal(err)
			}
			if text := <-got; text != "value<nil>" {
				t.Errorf("a waiting Get has %q", text)
			}
			if err := errors.Join(a.Set("key", []byte("later")), b.Set("empty", nil)); err != nil {
				t.Fatal(err)
			}
			later, err := b.Find("key")
			empty, err2 := a.Find("empty")
			if string(later) != "later" || empty == nil || len(empty) != 0 || errors.Join(err, err2) != nil {
				t.Errorf("got %q and %v, %v, %v", later, empty, err, err2)
			}
			for i, value := range []string{"first", "second", "third"} {
				if held, err := pair[i%2].Claim("claimed", []byte(value)); string(held) != "first" || err != nil {
					t.Errorf("the claim of %q gives %q, %v", value, held, err)
				}
			}
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := a.Get(short, "nothing"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a key that never comes: %v", err)
			}
			b.Close()
			if err := b.Set("key", nil); !errors.Is(err, ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
	(*Store)(nil).Close()
}

// A store that is served on one address of this machine is not reached on another.
func TestStoreIsServedOnItsAddressAlone(t *testing.T) {
	_, _, port := tcpStores(t)
	if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.2:%d", port)); err == nil {
		c.Close()
		t.Error("127.0.0.2 answers for a store on 127.0.0.1")
	}
}

// Strangers that send nothing, garbage or half a request do not stop a store.
func TestStrangersDoNotStopAStore(t *testing.T) {
	server, client, port := tcpStores(t)
	for i := range 100 {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte(strings.Repeat("\xffgarbage", i%3*i)))
	}
	if err := server.Set("key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if value, err := client.Find("key"); string(value) != "value" || err != nil {
		t.Errorf("got %q, %v", value, err)
	}
}

func TestStoreThatNobodyServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, bad := range []string{address, "a:b"} {
		if _, err := OpenTCPStore(bad, nil, time.Second); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: got %v", bad, err)
		}
	}
	if _, err := OpenFileStore("/nowhere/store"); err == nil || !strings.Contains(err.Error(),
		"store in /nowhere/store: ") {
		t.Errorf("got %v", err)
	}
}
