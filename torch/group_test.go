package torch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"gyre/internal/child/childtest"
)

// What a rank process is started with: names in rankBodies, its rank, how many there are, the store's file.
const rankEnv = "GYRE_TORCH_TEST_RANK"

// rankBodies are what the ranks of a test do.
var rankBodies = map[string]func(g *Group) error{}

// TestMain turns a process that was started by startRanks into that rank.
func TestMain(m *testing.M) {
	spec := os.Getenv(rankEnv)
	if spec == "" {
		os.Exit(m.Run())
	}
	if err := beRank(strings.Split(spec, " ")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func beRank(spec []string) error {
	rank, _ := strconv.Atoi(spec[1])
	size, _ := strconv.Atoi(spec[2])
	timeout, _ := time.ParseDuration(spec[4])
	store, err := OpenFileStore(spec[3])
	if err != nil {
		return err
	}
	defer store.Close()
	if err := SetThreads(1); err != nil {
		return err
	}
	g, err := OpenGroup(context.Background(), GroupConfig{Rank: rank, WorldSize: size, Store: store, Prefix: "test/",
		Timeout: timeout})
	if err != nil {
		return err
	}
	defer g.Close()
	for _, name := range strings.Split(spec[0], "+") {
		if err := rankBodies[name](g); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// rankProcesses are the ranks of a test, as processes of this test binary.
type rankProcesses struct {
	processes []*exec.Cmd
	output    []*bytes.Buffer
}

func openStore(t *testing.T, path string) *Store {
	t.Helper()
	store, err := OpenFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// startRanks runs a body of rankBodies in so many processes, or several with a + between them, one after another.
func startRanks(t *testing.T, name string, size int, timeout time.Duration) *rankProcesses {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	ranks := new(rankProcesses)
	for r := range size {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s %s", rankEnv, name, r, size, store, timeout))
		out := new(bytes.Buffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ranks.processes, ranks.output = append(ranks.processes, cmd), append(ranks.output, out)
	}
	return ranks
}

// wait gives what each rank wrote and how it ended.
func (p *rankProcesses) wait() (output []string, failed []error) {
	for r, cmd := range p.processes {
		failed = append(failed, cmd.Wait())
		output = append(output, p.output[r].String())
	}
	return output, failed
}

// runRanks needs all ranks to end well and gives what they wrote.
func runRanks(t *testing.T, name string, size int) []string {
	t.Helper()
	output, failed := startRanks(t, name, size, 2*time.Minute).wait()
	for r, err := range failed {
		if err != nil {
			t.Errorf("rank %d of %d: %v\n%s", r, size, err, output[r])
		}
	}
	return output
}

func init() {
	rankBodies["collectives"] = collectives
	rankBodies["death"] = death
	rankBodies["silence"] = silence
	rankBodies["aborted"] = aborted
	rankBodies["strangers"] = strangers
}

func collectives(g *Group) error {
	ctx, r, n := context.Background(), g.Rank(), g.WorldSize()
	parts, err := g.AllGather(ctx, bytes.Repeat([]byte{byte(r)}, 1000*r)) // rank 0 brings nothing
	if err != nil {
		return err
	}
	for i, part := range parts {
		if !bytes.Equal(part, bytes.Repeat([]byte{byte(i)}, 1000*i)) {
			return fmt.Errorf("all-gather: rank %d has brought %d bytes", i, len(part))
		}
	}
	before := g.Traffic()[CargoControl]
	for range 100 {
		if err := g.Barrier(ctx); err != nil {
			return err
		}
	}
	after := g.Traffic()[CargoControl]
	const length = 8 // of what a rank brings
	if n > 1 && (after.Sent-before.Sent != float64(100*(n-1)*length) || after.Waited <= before.Waited) {
		return fmt.Errorf("traffic of 100 barriers: %+v, before %+v", after, before)
	}
	return nil
}

// What any number of ranks does together: collectives, training in shards as one process trains, deterministic sums,
// gradients of their own and sampling. They do one thing after another, because starting them takes longer than most of it.
func TestRanks(t *testing.T) {
	digests := map[string]bool{}
	for _, n := range []int{1, 2, 3, 4} {
		bodies := "collectives+shards+lanes+together"
		if n < 4 { // four ranks cannot share its six lanes
			bodies += "+own"
		}
		if n%2 == 0 {
			bodies += "+others"
		}
		for _, output := range runRanks(t, bodies, n) {
			lines := strings.Split(strings.TrimSpace(output), "\n")
			if len(lines) != 6 {
				t.Fatalf("%d ranks: %s", n, output)
			}
			for _, line := range lines {
				digests[line] = true
			}
		}
	}
	if len(digests) != 2 { // one per model, whatever the number of ranks and what is in shards
		t.Error(digests)
	}
}

// The last rank ends without a word while the others wait, rank 0 only for a rank that waits itself.
func death(g *Group) error {
	ctx := context.Background()
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	if g.Rank() == g.WorldSize()-1 {
		os.Exit(7)
	}
	begin := time.Now()
	_, err := g.AllGather(ctx, []byte{1})
	again := g.Barrier(ctx)
	if took := time.Since(begin); took > 30*time.Second { // it did not wait for the group's timeout
		return fmt.Errorf("took %v", took)
	}
	if !errors.Is(err, ErrDisconnected) || !errors.Is(again, ErrDisconnected) {
		return fmt.Errorf("got %v and %v, want ErrDisconnected", err, again)
	}
	fmt.Println(err)
	return noticed(g)
}

// noticed returns when all ranks but the last have called it: one that ended before would be named by the others.
func noticed(g *Group) error {
	store := g.config.Store
	err := store.Set(fmt.Sprint("noticed", g.Rank()), nil)
	for r := range g.WorldSize() - 1 {
		_, failed := store.Get(context.Background(), fmt.Sprint("noticed", r))
		err = errors.Join(err, failed)
	}
	return err
}

func TestDeadRankIsNamed(t *testing.T) {
	output, failed := startRanks(t, "death", 3, time.Minute).wait()
	for r, text := range output[:2] {
		if failed[r] != nil || !strings.Contains(text, "all-gather: ") || !strings.Contains(text, "rank 2 has gone") {
			t.Errorf("rank %d: %v: %s", r, failed[r], text)
		}
	}
}

// The last rank neither ends nor answers.
func silence(g *Group) error {
	ctx := context.Background()
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	if g.Rank() == g.WorldSize()-1 {
		time.Sleep(2 * time.Minute) // the test ends it
		return nil
	}
	err := g.Barrier(ctx)
	if !errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("got %v", err)
	}
	fmt.Println(err)
	return nil
}

func TestSilentRankIsNamed(t *testing.T) {
	ranks := startRanks(t, "silence", 2, 5*time.Second)
	err := ranks.processes[0].Wait()
	if text := ranks.output[0].String(); err != nil ||
		!strings.Contains(text, "all-gather: rank 1 has not answered for 5") {
		t.Errorf("%v: %s", err, text)
	}
	childtest.Kill(t, ranks.processes[1]) // it was silent, and had not ended
}

// A context that ends while rank 0 waits aborts its group, and an abort that has begun is over before the group is
// closed.
func aborted(g *Group) error {
	ctx := context.Background()
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	store := g.config.Store
	if g.Rank() > 0 { // comes when rank 0 has given up
		if _, err := store.Get(ctx, "aborted"); err != nil {
			return err
		}
		if err := g.Barrier(ctx); !errors.Is(err, ErrDisconnected) {
			return fmt.Errorf("got %v", err)
		}
		return nil
	}
	stopping, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := g.Barrier(stopping); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("got %v", err)
	}
	return errors.Join(g.Close(), store.Set("aborted", nil))
}

func TestEndOfAContextAbortsTheGroup(t *testing.T) { runRanks(t, "aborted", 3) }

// listeners are the loopback ports that this process listens on.
func listeners() ([]string, error) {
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		return nil, err
	}
	mine := map[string]bool{}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		link, _ := os.Readlink("/proc/self/fd/" + f.Name())
		mine[strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")] = true
	}
	var ports []string
	for _, line := range strings.Split(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[3] == "0A" && mine[fields[9]] {
			port, _ := strconv.ParseUint(strings.Split(fields[1], ":")[1], 16, 16)
			ports = append(ports, fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	return ports, nil
}

// Every rank is called on by strangers that send nothing, half a greeting, or garbage; the ranks go on.
func strangers(g *Group) error {
	ports, err := listeners()
	if err != nil || len(ports) == 0 {
		return fmt.Errorf("ports of this rank: %v, %v", ports, err)
	}
	for _, port := range ports {
		for i := range 60 {
			conn, err := net.Dial("tcp", port)
			if err != nil {
				return err
			}
			defer conn.Close()
			conn.Write(bytes.Repeat([]byte("\xffgarbage"), i%3*(i+1)))
		}
	}
	return collectives(g)
}

func TestStrangersDoNotStopAGroup(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("finds the ports in /proc")
	}
	runRanks(t, "strangers", 3)
}

func TestOpeningAGroupEndsWithItsContext(t *testing.T) {
	store := openStore(t, filepath.Join(t.TempDir(), "store"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	config := GroupConfig{Rank: 1, WorldSize: 2, Store: store, Prefix: "b", Timeout: time.Second}
	if _, err := OpenGroup(ctx, config); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// A process alone can ask where it stands; a collective has no group to go through, which is a mistake of the program.
func TestNilGroupIsAProcessAlone(t *testing.T) {
	var g *Group
	if g.Rank() != 0 || g.WorldSize() != 1 {
		t.Errorf("rank %d of %d", g.Rank(), g.WorldSize())
	}
	defer func() {
		if recover() == nil {
			t.Error("a collective without a group")
		}
	}()
	g.AllGather(t.Context(), []byte("x"))
}

// A build without NCCL's group says so, and how to come by one.
func TestMissingNCCLIsExplained(t *testing.T) {
	if _, err := os.Stat("../build/libgyre_nccl.so"); err == nil {
		t.Skip("this build has NCCL's group")
	}
	path := filepath.Join(t.TempDir(), "store")
	failed := make(chan error, 2)
	for rank := range 2 {
		store := openStore(t, path)
		go func() {
			g, err := OpenGroup(t.Context(), GroupConfig{Rank: rank, WorldSize: 2, Store: store, Prefix: "nccl/",
				Backend: "nccl", Timeout: time.Minute})
			if err == nil {
				g.Close()
			}
			failed <- err
		}()
	}
	for range 2 {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "backend nccl is not in this build") ||
			!strings.Contains(err.Error(), "make setup build") {
			t.Errorf("got %v", err)
		}
	}
}
