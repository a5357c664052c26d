package ranks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRecognise(t *testing.T) {
	for _, x := range []struct {
		name string
		env  map[string]string
		want Place
		many bool
		err  string
	}{
		{"alone", map[string]string{"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, Place{}, false, ""}, // a batch script, not a task
		{"torchrun", map[string]string{"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500",
			"TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
			Place{Launcher: "torchrun", Rank: 1, Size: 4, LocalRank: 1, LocalSize: 2, Job: "x.1", AgentStore: "a:29500"}, true, ""},
		{"one of torchrun", map[string]string{"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}, Place{}, false, ""},
		{"mpirun", map[string]string{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
			"PMIX_NAMESPACE": "prterun-h-1@1"}, Place{Launcher: "mpirun", Rank: 3, Size: 4, LocalRank: 1, LocalSize: 2, Job: "prterun-h-1@1"}, true, ""},
		{"srun", map[string]string{"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_JOB_ID": "7",
			"SLURM_STEP_ID": "0"}, Place{Launcher: "srun", Rank: 2, Size: 4, LocalSize: 2, Job: "7.0"}, true, ""},
		{"PyTorchJob", map[string]string{"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "KUBERNETES_SERVICE_HOST": "10.0.0.1", envToken: "s"},
			Place{Launcher: "PyTorchJob", Rank: 1, Size: 3, Address: "job-master-0:23456", Token: "s"}, true, ""},
		{"our own", map[string]string{envRank: "1", envSize: "2", envAddress: "127.0.0.1:5", envToken: "s"},
			Place{Launcher: "gyre", Rank: 1, Size: 2, LocalRank: 1, LocalSize: 2, Address: "127.0.0.1:5", Token: "s"}, true, ""},
		{"beyond", map[string]string{"RANK": "4", "WORLD_SIZE": "4"}, Place{}, false, "RANK=4 but WORLD_SIZE=4"},
		{"no number", map[string]string{"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "4"}, Place{}, false, `OMPI_COMM_WORLD_RANK is "x"`},
	} {
		got, many, err := recognise(func(name string) string { return x.env[name] })
		if got != x.want || many != x.many || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: %+v, %v, %v", x.name, got, many, err)
		}
	}
}

const secret = "the run's own"

var usual = Identity{Size: 3, Version: "v1", Config: "abcdef"}

func open(t *testing.T, d Deadlines) *server {
	t.Helper()
	s, err := serve("127.0.0.1:0", secret, usual, d, explainLost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func member3(rank int) Identity {
	who := usual
	who.Rank, who.Host, who.PID = rank, fmt.Sprintf("host%d", rank), 100+rank
	return who
}

func enterAs(t *testing.T, s *server, who Identity) (*client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := dial(ctx, s.address, secret, who, 0)
	if err == nil {
		t.Cleanup(c.close)
	}
	return c, err
}

func mustEnter(t *testing.T, s *server, rank int) *client {
	t.Helper()
	c, err := enterAs(t, s, member3(rank))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func failureOf(t *testing.T, s *server) *Failure {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	f := s.wait(ctx)
	if f == nil {
		t.Fatal("the run did not fail")
	}
	return f
}

func TestStoreAndProgress(t *testing.T) {
	s := open(t, Deadlines{})
	var all []*client
	for rank := range usual.Size {
		all = append(all, mustEnter(t, s, rank))
	}
	ctx := t.Context()
	got := make(chan string)
	go func() {
		value, err := all[2].Get(ctx, "key")
		got <- fmt.Sprint(string(value), err)
	}()
	time.Sleep(20 * time.Millisecond)
	if err := all[0].Set(ctx, "key", []byte("value")); err != nil {
		t.Fatal(err)
	}
	if text := <-got; text != "value<nil>" {
		t.Errorf("a waiting get has %q", text)
	}
	for i, c := range all {
		if n, err := c.Add(ctx, "count", 2); err != nil || n != int64(2*(i+1)) {
			t.Errorf("add gives %d, %v", n, err)
		}
	}
	missing, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := all[1].Get(missing, "nothing"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a key that never comes: %v", err)
	}
	for share := 0.1; ; share += 0.1 {
		all[0].progress("play", 0.9)
		all[1].progress("play", 0.5)
		if slowest := all[2].progress("play", 0.7); slowest == 0.5 {
			break
		}
		if share > 6 {
			t.Fatal("the share of the slowest rank does not come")
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, c := range all {
		c.leave()
	}
	s.drain()
	if s.failedWith() != nil {
		t.Errorf("goodbyes are a failure: %v", s.failedWith())
	}
}

// What does not fit names the rank and what it has, ends the run, and every rank learns of it.
func TestRanksThatDoNotFit(t *testing.T) {
	for want, change := range map[string]func(*Identity){
		"rank 2 on host2: its configuration has the hash 123456, expected abcdef": func(w *Identity) { w.Config = "123456" },
		"rank 2 on host2: it is gyre v0, expected v1":                             func(w *Identity) { w.Version = "v0" },
		"rank 2 on host2: it takes part in a run of 4 ranks, expected 3":          func(w *Identity) { w.Size = 4 },
		"rank 1 on host2: two processes have this rank: 101 on host1 and 102":     func(w *Identity) { w.Rank = 1 },
		"rank 7 on host2: ranks count from 0 to 2":                                func(w *Identity) { w.Rank = 7 },
	} {
		s := open(t, Deadlines{})
		first := mustEnter(t, s, 1)
		who := member3(2)
		change(&who)
		if _, err := enterAs(t, s, who); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it was told %v, want %q", err, want)
		}
		<-first.ended
		if got := first.failure.Error(); !strings.Contains(got, want) {
			t.Errorf("the others were told %q, want %q", got, want)
		}
	}
}

func TestFailures(t *testing.T) {
	t.Run("reported", func(t *testing.T) {
		s := open(t, Deadlines{})
		a, b := mustEnter(t, s, 0), mustEnter(t, s, 1)
		a.fail("step 3: no memory is left", 1)
		<-b.ended // the first is who is named: what comes later changes nothing
		b.fail("late", 1)
		if got := b.failure.Error(); got != "rank 0 on host0: step 3: no memory is left" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("ended without a word", func(t *testing.T) {
		s := open(t, Deadlines{})
		a, b := mustEnter(t, s, 0), mustEnter(t, s, 1)
		a.close()
		<-b.ended
		if got := b.failure.Error(); !strings.HasPrefix(got, "rank 0 on host0: its process ended without a word") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("silent", func(t *testing.T) {
		s := open(t, Deadlines{Beat: 3 * time.Second})
		mustEnter(t, s, 0)
		c, err := net.Dial("tcp", s.address) // it joins, and then says nothing
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		who := member3(1)
		if err := errors.Join(enter(c, secret), send(c, message{Op: opJoin, Identity: &who})); err != nil {
			t.Fatal(err)
		}
		if f := failureOf(t, s); f.Rank != 1 || !strings.Contains(f.Cause, "no sign of life for 3s: process 101") {
			t.Errorf("got %v", f)
		}
	})
	t.Run("never came", func(t *testing.T) {
		s := open(t, Deadlines{Join: 100 * time.Millisecond})
		mustEnter(t, s, 0)
		if f := failureOf(t, s); f.Rank != 1 || !strings.Contains(f.Cause, "did not come within 100ms") {
			t.Errorf("got %v", f)
		}
	})
	t.Run("the rendezvous is gone", func(t *testing.T) {
		s := open(t, Deadlines{})
		a := mustEnter(t, s, 1)
		s.close()
		<-a.ended
		if !strings.Contains(a.failure.Error(), "the rendezvous at "+s.address+" is gone") {
			t.Errorf("got %v", a.failure)
		}
	})
}

// Garbage, half a handshake, a flood of connections and frames of any length neither join nor stop a run.
func TestStrangers(t *testing.T) {
	s := open(t, Deadlines{})
	var strangers []net.Conn
	var mu sync.Mutex
	keep := func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		strangers = append(strangers, c)
	}
	defer func() {
		for _, c := range strangers {
			c.Close()
		}
	}()
	var flood sync.WaitGroup
	for i := range 4 * mostOpen {
		flood.Go(func() {
			c, err := net.Dial("tcp", s.address)
			if err != nil {
				return
			}
			keep(c)
			switch i % 4 {
			case 0: // half a handshake
			case 1:
				io.CopyN(c, rand.Reader, 4096)
			case 2: // the wrong token
				if err := enter(c, "another"); err == nil {
					t.Error("a wrong token was admitted")
				}
			case 3:
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			}
		})
	}
	var all []*client
	for rank := range usual.Size {
		all = append(all, mustEnter(t, s, rank))
	}
	flood.Wait()
	for i := range 100 {
		key := fmt.Sprint("key", i)
		if err := all[i%3].Set(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
		if value, err := all[(i+1)%3].Get(t.Context(), key); err != nil || string(value) != key {
			t.Fatal(string(value), err)
		}
	}
	// One that knows the token but not the protocol is dropped as well.
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := enter(c, secret); err != nil {
		t.Fatal(err)
	}
	c.Write([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frame of 4 GiB: %v, want the connection closed", err)
	}
	if f := s.failedWith(); f != nil {
		t.Errorf("the run failed: %v", f)
	}
	s.mu.Lock()
	members := len(s.members)
	s.mu.Unlock()
	if members != usual.Size {
		t.Errorf("%d members", members)
	}
}

// Rank 0 leaves address and token where only its user reads them, and takes them away again.
func TestMeetingInAFile(t *testing.T) {
	dir := t.TempDir()
	p := Place{Launcher: "srun", Size: 2, Job: "7/0"}
	a, err := p.meet(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	p.Rank = 1
	b, err := p.meet(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := b.find(short); err == nil || !strings.Contains(err.Error(), "run.output") {
		t.Errorf("before rank 0 came: %v", err)
	}
	if err := a.publish(t.Context(), "127.0.0.1:5", "token"); err != nil {
		t.Fatal(err)
	}
	address, token, err := b.find(t.Context())
	if err != nil || address != "127.0.0.1:5" || token != "token" {
		t.Errorf("%s %s %v", address, token, err)
	}
	files, _ := filepath.Glob(dir + "/.*")
	if info, err := os.Stat(files[0]); err != nil || len(files) != 1 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v, %v", files, info.Mode(), err)
	}
	b.close()
	a.close()
	if files, _ := filepath.Glob(dir + "/.*"); len(files) != 0 {
		t.Errorf("left are %v", files)
	}
	if _, err := (Place{Launcher: "PyTorchJob", Size: 2, Address: "a:1"}).meet(t.Context(), dir); err == nil || !strings.Contains(err.Error(), envToken) {
		t.Errorf("without a token: %v", err)
	}
}

func TestResolve(t *testing.T) {
	for bind, want := range map[string]string{"": "127.0.0.1", "10.1.2.3": "10.1.2.3", "lo": "127.0.0.1"} {
		if got, err := resolve(bind); err != nil || got != want {
			t.Errorf("%q: %q, %v", bind, got, err)
		}
	}
	for bind, want := range map[string]string{"0.0.0.0": "name the address", "eth99": "neither an address nor an interface of this machine, which has lo"} {
		if _, err := resolve(bind); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", bind, err)
		}
	}
}
