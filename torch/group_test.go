package torch

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// memoryStore is a table in this process; storeServer and storeClient carry it to others.
type memoryStore struct {
	mu     sync.Mutex
	values map[string][]byte
	counts map[string]int64
}

type storeCall struct {
	Op, Key string
	Value   []byte
	N       int64
}

type storeReply struct {
	Found bool
	Value []byte
	N     int64
}

func (s *memoryStore) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
			for {
				var call storeCall
				if in.Decode(&call) != nil {
					return
				}
				s.mu.Lock()
				var reply storeReply
				switch call.Op {
				case "set":
					s.values[call.Key] = call.Value
				case "get":
					reply.Value, reply.Found = s.values[call.Key]
				case "add":
					s.counts[call.Key] += call.N
					reply.N = s.counts[call.Key]
				}
				s.mu.Unlock()
				if out.Encode(reply) != nil {
					return
				}
			}
		}()
	}
}

type storeClient struct {
	mu  sync.Mutex
	in  *gob.Decoder
	out *gob.Encoder
}

func dialStore(address string) (*storeClient, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &storeClient{in: gob.NewDecoder(conn), out: gob.NewEncoder(conn)}, nil
}

func (c *storeClient) call(call storeCall) (reply storeReply, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(call); err != nil {
		return reply, err
	}
	return reply, c.in.Decode(&reply)
}

func (c *storeClient) Set(_ context.Context, key string, value []byte) error {
	_, err := c.call(storeCall{Op: "set", Key: key, Value: value})
	return err
}

func (c *storeClient) Get(ctx context.Context, key string) ([]byte, error) {
	for {
		reply, err := c.call(storeCall{Op: "get", Key: key})
		if err != nil || reply.Found {
			return reply.Value, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("no key %q: %w", key, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (c *storeClient) Add(_ context.Context, key string, n int64) (int64, error) {
	reply, err := c.call(storeCall{Op: "add", Key: key, N: n})
	return reply.N, err
}

// What a rank process is started with: the test's name in rankBodies, its rank, how many there are, the store's address.
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
	store, err := dialStore(spec[3])
	if err != nil {
		return err
	}
	if err := SetThreads(1); err != nil {
		return err
	}
	g, err := OpenGroup(context.Background(), GroupConfig{Rank: rank, WorldSize: size, Store: store, Prefix: "test/", Timeout: timeout})
	if err != nil {
		return err
	}
	defer g.Close()
	return rankBodies[spec[0]](g)
}

// rankProcesses are the ranks of a test, as processes of this test binary.
type rankProcesses struct {
	processes []*exec.Cmd
	output    []*bytes.Buffer
}

// startRanks runs a body of rankBodies in so many processes.
func startRanks(t *testing.T, name string, size int, timeout time.Duration) *rankProcesses {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	store := &memoryStore{values: map[string][]byte{}, counts: map[string]int64{}}
	go store.serve(l)
	ranks := new(rankProcesses)
	for r := range size {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %s %s", rankEnv, name, r, size, l.Addr(), timeout))
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
	rankBodies["abort"] = abortElsewhere
	rankBodies["strangers"] = strangers
}

func collectives(g *Group) error {
	ctx, r, n := context.Background(), g.Rank(), g.WorldSize()
	// Sums whose bits depend on the order: they must be those of neighbours first, on every rank.
	terms := make([]float64, n)
	for i := range terms {
		terms[i] = math.Pow(-3, float64(i)) * 1e15 / 7
	}
	data := []float64{terms[r], float64(r), -float64(r)}
	if err := g.AllReduce(ctx, data, Sum); err != nil {
		return err
	}
	for step := 1; step < n; step *= 2 {
		for i := 0; i+step < n; i += 2 * step {
			terms[i] += terms[i+step]
		}
	}
	if data[0] != terms[0] || data[1] != float64(n*(n-1)/2) || data[2] != -data[1] {
		return fmt.Errorf("sum: got %v, want %v", data, terms[0])
	}
	for op, want := range map[Op]float64{Max: float64(n - 1), Min: 0} {
		data := []float64{float64(r)}
		if err := g.AllReduce(ctx, data, op); err != nil {
			return err
		}
		if data[0] != want {
			return fmt.Errorf("operation %d: got %v, want %v", op, data[0], want)
		}
	}
	nan := []float64{1}
	if r == n-1 {
		nan[0] = math.NaN()
	}
	if err := g.AllReduce(ctx, nan, Max); err != nil || !math.IsNaN(nan[0]) {
		return fmt.Errorf("max with a NaN: got %v, %v", nan[0], err)
	}
	parts, err := g.AllGather(ctx, bytes.Repeat([]byte{byte(r)}, 1000*r)) // rank 0 brings nothing
	if err != nil {
		return err
	}
	for i, part := range parts {
		if !bytes.Equal(part, bytes.Repeat([]byte{byte(i)}, 1000*i)) {
			return fmt.Errorf("all-gather: rank %d has brought %d bytes", i, len(part))
		}
	}
	for root := range n {
		text, err := g.Broadcast(ctx, []byte(fmt.Sprintf("from rank %d", r)), root)
		if want := fmt.Sprintf("from rank %d", root); err != nil || string(text) != want {
			return fmt.Errorf("broadcast: got %q, %v, want %q", text, err, want)
		}
	}
	before := g.Traffic()[CargoControl]
	for range 100 {
		if err := g.Barrier(ctx); err != nil {
			return err
		}
	}
	after := g.Traffic()[CargoControl]
	if n > 1 && (after.Operations-before.Operations != 100 || after.Sent-before.Sent != float64(100*(n-1)) || after.Waited <= before.Waited) {
		return fmt.Errorf("traffic of 100 barriers: %+v, before %+v", after, before)
	}
	return nil
}

func TestCollectives(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4} {
		runRanks(t, "collectives", n)
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
	err := g.AllReduce(ctx, []float64{1}, Sum)
	again := g.Barrier(ctx)
	if time.Since(begin) > 10*time.Second {
		return fmt.Errorf("took %v", time.Since(begin))
	}
	if !errors.Is(err, ErrDisconnected) || !errors.Is(again, ErrDisconnected) {
		return fmt.Errorf("got %v and %v, want ErrDisconnected", err, again)
	}
	fmt.Println(err)
	return nil
}

func TestDeadRankIsNamed(t *testing.T) {
	output, failed := startRanks(t, "death", 3, time.Minute).wait()
	for r, text := range output[:2] {
		if failed[r] != nil || !strings.Contains(text, "all-reduce: ") || !strings.Contains(text, "rank 2 has gone") {
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
		time.Sleep(8 * time.Second)
		return nil
	}
	begin := time.Now()
	err := g.Barrier(ctx)
	if took := time.Since(begin); !errors.Is(err, ErrDisconnected) || took < time.Second || took > 7*time.Second {
		return fmt.Errorf("got %v after %v", err, took)
	}
	fmt.Println(err)
	return nil
}

func TestSilentRankIsNamed(t *testing.T) {
	output, failed := startRanks(t, "silence", 2, 2*time.Second).wait()
	if failed[0] != nil || !strings.Contains(output[0], "barrier: rank 1 has not answered for 2") {
		t.Errorf("%v: %s", failed[0], output[0])
	}
}

// Rank 0 waits for the others until its context ends; they come later, and wait for it.
func abortElsewhere(g *Group) error {
	if g.Rank() > 0 {
		time.Sleep(2 * time.Second)
		err := g.Barrier(context.Background())
		if !errors.Is(err, ErrDisconnected) {
			return fmt.Errorf("got %v", err)
		}
		fmt.Println(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := g.Barrier(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("got %v", err)
	}
	time.Sleep(4 * time.Second) // still connected: the others hear of it through the store
	return nil
}

func TestAbortReachesEveryRank(t *testing.T) {
	output, failed := startRanks(t, "abort", 3, time.Minute).wait()
	for r, err := range failed {
		if err != nil {
			t.Errorf("rank %d: %v: %s", r, err, output[r])
		}
	}
	for r := 1; r < 3; r++ {
		if !strings.Contains(output[r], "rank 0 has failed") {
			t.Errorf("rank %d: %s", r, output[r])
		}
	}
}

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

func TestMissingRankIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go (&memoryStore{values: map[string][]byte{}, counts: map[string]int64{}}).serve(l)
	store, err := dialStore(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = OpenGroup(t.Context(), GroupConfig{Rank: 0, WorldSize: 2, Store: store, Timeout: 500 * time.Millisecond})
	if !errors.Is(err, ErrDisconnected) || !strings.Contains(err.Error(), "rank 1 of 2 has not come within 0.5") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := OpenGroup(ctx, GroupConfig{Rank: 1, WorldSize: 2, Store: store, Prefix: "b", Timeout: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestNilGroupIsAWorldOfOne(t *testing.T) {
	var g *Group
	data := []float64{3}
	parts, err := g.AllGather(t.Context(), []byte("x"))
	text, err2 := g.Broadcast(t.Context(), []byte("y"), 0)
	if g.Rank() != 0 || g.WorldSize() != 1 || errors.Join(err, err2, g.AllReduce(t.Context(), data, Sum), g.Barrier(t.Context()), g.Close()) != nil {
		t.Error(err, err2)
	}
	if data[0] != 3 || len(parts) != 1 || string(parts[0]) != "x" || string(text) != "y" || g.Traffic().Total() != (Flow{}) {
		t.Error(data, parts, text)
	}
}

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
