package ranks

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var common = identity{Size: 3, Version: "v1", Config: "abcdef"}

func rankOf3(rank int) identity {
	who := common
	who.Rank, who.Host, who.PID = rank, fmt.Sprintf("host%d", rank), 100+rank
	return who
}

// members makes the ranks of a test in this process: each has a store of its own, in one file or, with tcp, served by
// rank 0.
func members(t *testing.T, tcp bool, d deadlines) func(who identity) *membership {
	t.Helper()
	address := file + filepath.Join(t.TempDir(), "store")
	if tcp {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address = free.Addr().String()
		free.Close()
	}
	return func(who identity) *membership {
		t.Helper()
		r, err := openRendezvous(t.Context(), Place{Launcher: "environment", Rank: who.Rank, Size: who.Size,
			Address: address}, "127.0.0.1", "")
		if err != nil {
			t.Fatal(err)
		}
		m := newMembership(r, who, d)
		t.Cleanup(func() {
			m.owned = false // other ranks of the test may not leave
			m.close()
		})
		return m
	}
}

// joined are all ranks of a run.
func joined(t *testing.T, open func(identity) *membership) (all []*membership) {
	t.Helper()
	done := make(chan error)
	for rank := range common.Size {
		m := open(rankOf3(rank))
		all = append(all, m)
		go func() { done <- m.join(t.Context()) }()
	}
	for range all {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func failureOf(t *testing.T, m *membership) *Failure {
	t.Helper()
	select {
	case <-m.failed.Done():
	case <-time.After(time.Minute):
		t.Fatalf("rank %d does not hear that the run has failed", m.who.Rank)
	}
	return m.failure()
}

// What does not fit names the rank and what it has, ends the run, and every rank learns of it.
func TestRanksThatDoNotFit(t *testing.T) {
	for want, change := range map[string]func(*identity){
		"rank 2 on host2: its configuration has the hash 123456, expected abcdef": func(w *identity) { w.Config = "123456" },
		"rank 2 on host2: it is gyre v0, expected v1":                             func(w *identity) { w.Version = "v0" },
		"rank 2 on host2: it takes part in a run of 4 ranks, expected 3":          func(w *identity) { w.Size = 4 },
		"rank 1 on host2: two processes have this rank: 101 on host1 and 102":     func(w *identity) { w.Rank = 1 },
	} {
		open := members(t, false, usual)
		failed := make(chan error, 3)
		for _, rank := range []int{0, 1} {
			m := open(rankOf3(rank))
			go func() { failed <- m.join(t.Context()) }()
		}
		first := open(rankOf3(0)) // a look into the store
		for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
			var one identity
			if found, err := first.find(keyRank(1), &one); err != nil || found {
				break
			}
		}
		who := rankOf3(2)
		change(&who)
		m := open(who)
		go func() { failed <- m.join(t.Context()) }()
		for range 3 {
			if err := <-failed; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a rank was told %v, want %q", err, want)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	t.Run("the first report counts", func(t *testing.T) {
		all := joined(t, members(t, true, usual))
		want := "rank 0 on host0: step 3: no memory is left"
		if got := all[0].fail(all[0].who, "step 3: no memory is left", 1).Error(); got != want {
			t.Errorf("got %q", got)
		}
		if got := all[1].fail(all[1].who, "late", 1).Error(); got != want {
			t.Errorf("a later report has become %q", got)
		}
		if got := failureOf(t, all[2]).Error(); got != want {
			t.Errorf("got %q", got)
		}
	})
	for _, silent := range []int{0, 1} {
		t.Run(fmt.Sprint("rank ", silent, " is silent"), func(t *testing.T) {
			all := joined(t, members(t, false, deadlines{usual.join, 3 * time.Second, usual.grace}))
			m := all[silent]
			m.closed <- struct{}{} // ends its keepUp and nothing else
			for _, other := range all {
				if other != m {
					if f := failureOf(t, other); f.Rank != silent || f.Host != m.who.Host ||
						!strings.Contains(f.Cause, fmt.Sprintf("no sign of life for 3s: process %d", m.who.PID)) {
						t.Errorf("rank %d was told %v", other.who.Rank, f)
					}
				}
			}
		})
	}
	t.Run("a rank that has left is not missed", func(t *testing.T) {
		all := joined(t, members(t, false, deadlines{usual.join, 3 * time.Second, usual.grace}))
		all[1].closed <- struct{}{}
		all[1].sign(left)
		time.Sleep(5 * time.Second)
		if f := all[0].failure(); f != nil {
			t.Error(f)
		}
	})
	t.Run("a rank never came", func(t *testing.T) {
		open := members(t, false, deadlines{2 * time.Second, usual.beat, usual.grace})
		failed := make(chan error, 2)
		for _, rank := range []int{0, 2} {
			m := open(rankOf3(rank))
			go func() { failed <- m.join(t.Context()) }()
		}
		for range 2 {
			if err := <-failed; err == nil || !strings.Contains(err.Error(),
				"rank 1: it did not come within 2s: was it started, and does it reach "+file) {
				t.Errorf("got %v", err)
			}
		}
	})
	t.Run("the store is gone", func(t *testing.T) {
		all := joined(t, members(t, true, usual))
		all[0].closed <- struct{}{}
		all[0].rendezvous.close()
		f := failureOf(t, all[1])
		if f.Rank != 0 || f.Host != "host0" || !strings.Contains(f.Cause,
			"its store at "+all[0].address+" does not answer") {
			t.Errorf("got %v", f)
		}
	})
}

// Rank 0 leaves the address where only its user reads it, and takes everything away again.
func TestPublishedRendezvous(t *testing.T) {
	for _, alone := range []bool{true, false} {
		folder, temporary := filepath.Join(t.TempDir(), "runs"), t.TempDir()
		t.Setenv("TMPDIR", temporary)
		p := Place{Launcher: "srun", Size: 2, LocalSize: 1, Job: "7/0"}
		if alone {
			p.LocalSize = 2
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		one := p
		one.Rank = 1
		if _, err := openRendezvous(short, one, "127.0.0.1", folder); err == nil ||
			!strings.Contains(err.Error(), "run.output") {
			t.Errorf("before rank 0 came: %v", err)
		}
		a, err := openRendezvous(t.Context(), p, "127.0.0.1", folder)
		if err != nil {
			t.Fatal(err)
		}
		b, err := openRendezvous(t.Context(), one, "127.0.0.1", folder)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(a.address, file) != alone || a.address != b.address || a.prefix != b.prefix || !a.owned ||
			b.owned {
			t.Errorf("%+v and %+v", a, b)
		}
		if err := a.keys.Set(a.prefix+"key", []byte("value")); err != nil {
			t.Fatal(err)
		}
		if value, err := b.keys.Get(t.Context(), b.prefix+"key"); err != nil || string(value) != "value" {
			t.Errorf("%q, %v", value, err)
		}
		files, _ := filepath.Glob(folder + "/.*")
		if info, err := os.Stat(files[0]); err != nil || len(files) != 1 || info.Mode().Perm() != 0o600 {
			t.Errorf("%v: %v, %v", files, info.Mode(), err)
		}
		if alone {
			if info, err := os.Stat(filepath.Dir(strings.TrimPrefix(a.address, file))); err != nil ||
				info.Mode().Perm() != 0o700 {
				t.Errorf("the folder of the store: %v, %v", info, err)
			}
		}
		b.close()
		a.close()
		files, _ = filepath.Glob(folder + "/.*")
		if stores, _ := filepath.Glob(temporary + "/*"); len(files)+len(stores) != 0 {
			t.Errorf("left are %v %v", files, stores)
		}
	}
}

// Ranks that are given an address meet there; which keys are theirs says the token.
func TestNamedRendezvous(t *testing.T) {
	if _, err := openRendezvous(t.Context(), Place{Launcher: "environment", Size: 2}, "", ""); err == nil ||
		!strings.Contains(err.Error(), envAddress+"=HOST:PORT") {
		t.Errorf("without an address: %v", err)
	}
	if _, err := openRendezvous(t.Context(), Place{Launcher: "environment", Size: 2, Rank: 1, Address: "a:b"}, "",
		""); err == nil || !strings.Contains(err.Error(), `"a:b", expected HOST:PORT`) {
		t.Errorf("without a port: %v", err)
	}
	one := Place{Address: file + filepath.Join(t.TempDir(), "store"), Job: "1", Token: "x"}
	other := one
	other.Token = "y"
	a, err := openRendezvous(t.Context(), one, "", "")
	b, err2 := openRendezvous(t.Context(), other, "", "")
	if err != nil || err2 != nil || a.prefix == b.prefix {
		t.Fatalf("both have the keys %s (%v, %v)", a.prefix, err, err2)
	}
	a.close()
	b.close()
}

func TestResolve(t *testing.T) {
	for bind, want := range map[string]string{"": "127.0.0.1", "10.1.2.3": "10.1.2.3", "lo": "127.0.0.1"} {
		if got, err := resolve(bind); err != nil || got != want {
			t.Errorf("%q: %q, %v", bind, got, err)
		}
	}
	for bind, want := range map[string]string{"0.0.0.0": "name the address",
		"eth99": "neither an address nor an interface of this machine, which has lo"} {
		if _, err := resolve(bind); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", bind, err)
		}
	}
}
