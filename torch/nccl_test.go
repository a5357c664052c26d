package torch

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// A build without NCCL's group says so, and how to come by one.
func TestMissingNCCLIsExplained(t *testing.T) {
	if _, err := os.Stat("../build/libgyre_nccl.so"); err == nil {
		t.Skip("this build has NCCL's group")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go (&memoryStore{values: map[string][]byte{}, counts: map[string]int64{}}).serve(l)
	failed := make(chan error, 2)
	for rank := range 2 {
		store, err := dialStore(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			g, err := OpenGroup(t.Context(), GroupConfig{Rank: rank, WorldSize: 2, Store: store, Prefix: "nccl/", Backend: "nccl", Timeout: time.Minute})
			g.Close()
			failed <- err
		}()
	}
	for range 2 {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "backend nccl is not in this build") || !strings.Contains(err.Error(), "make setup build") {
			t.Errorf("got %v", err)
		}
	}
}
