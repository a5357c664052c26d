package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gyre/internal/atomicfile"
	"gyre/internal/exitcode"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/orchestrate/run/rundir"
)

// thorough tests take minutes: GYRE_TEST_RANKS=1 runs them.
func thorough(t *testing.T) {
	t.Helper()
	if !orThorough(false, true) {
		t.Skip("takes minutes; GYRE_TEST_RANKS=1 runs it")
	}
}

// orThorough is what a test does in make test, or with GYRE_TEST_RANKS=1.
func orThorough[T any](usual, more T) T {
	if os.Getenv("GYRE_TEST_RANKS") != "" {
		return more
	}
	return usual
}

// uneven has three groups, which two or four ranks play unevenly.
const uneven = `[algorithm]
kl_coef = 0.01
`

func ranksConfig(t *testing.T, dir string) string {
	t.Helper()
	path := tinyConfig(t, dir, uneven)
	text := strings.Replace(string(readFile(t, path)), "groups = 2\n", "groups = 3\n", 1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// sure makes a run of four steps whose bits depend on no number of ranks.
var sure = []string{"fsdp.deterministic=true", "fsdp.lanes=12", "run.steps=4"}

var calm struct {
	once sync.Once
	dir  string
	took time.Duration
}

// calmRun is such a run in one process, which nothing disturbs, and the time that it took. It is made once for all tests.
func calmRun(t *testing.T) (run string, took time.Duration) {
	t.Helper()
	calm.once.Do(func() {
		dir := filepath.Join(filepath.Dir(tinyPolicy(t)), "calm")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		mustGyre(t, dir, append([]string{"train", ranksConfig(t, dir)}, sure...)...)
		calm.dir, calm.took = filepath.Join(dir, "runs/tiny"), time.Since(begun)
	})
	if calm.dir == "" {
		t.Fatal("the run that nothing disturbs failed in another test")
	}
	return calm.dir, calm.took
}

// farthest is the largest difference between the weights of two models, beside the largest weight.
func farthest(t *testing.T, a, b string) float64 {
	t.Helper()
	difference, size := 0.0, 0.0
	first, second := tensors(t, a), tensors(t, b)
	if len(first) != len(second) || len(first) == 0 {
		t.Fatalf("%d and %d tensors", len(first), len(second))
	}
	for name, x := range first {
		y := second[name]
		if len(x) != len(y) {
			t.Fatalf("%s has %d and %d elements", name, len(x), len(y))
		}
		for i := range x {
			difference, size = math.Max(difference, math.Abs(x[i]-y[i])), math.Max(size, math.Abs(x[i]))
		}
	}
	return difference / size
}

func tensors(t *testing.T, path string) map[string][]float64 {
	t.Helper()
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]float64{}
	for _, x := range f.Tensors {
		data, err := x.Load(nil)
		if err != nil {
			t.Fatal(err)
		}
		for len(data) >= 4 {
			bits := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
			out[x.Name] = append(out[x.Name], float64(math.Float32frombits(bits)))
			data = data[4:]
		}
	}
	return out
}

// close compares the numbers of two runs: those that say something of a whole step agree to the tolerance.
func closeMetrics(t *testing.T, want, got string, tolerance float64) {
	t.Helper()
	a, b := steadyMetrics(t, filepath.Join(want, "metrics.jsonl")),
		steadyMetrics(t, filepath.Join(got, "metrics.jsonl"))
	if len(a) != len(b) {
		t.Fatalf("%d lines of metrics, want %d", len(b), len(a))
	}
	for step, values := range a {
		closeValues(t, step, values, b[step], tolerance)
	}
}

// closeValues compares the numbers of one step.
func closeValues(t *testing.T, step int, want, got map[string]any, tolerance float64) {
	t.Helper()
	for name, v := range want {
		x, number := v.(float64)
		y, ok := got[name].(float64)
		if number != ok {
			t.Errorf("step %d: %s = %v, want %v", step, name, got[name], v)
		}
		// Means of what cancels out have no digits of their own, nor have cosines of gradients that are nearly
		// rounding alone.
		least := 1e-2
		if strings.Contains(name, "cosine") {
			least = 0.1
		}
		if number && math.Abs(x-y) > tolerance*math.Max(math.Abs(x), least) {
			t.Errorf("step %d: %s = %v, want %v", step, name, y, x)
		}
	}
}

// Played by 2 or 4 processes a deterministic run has the bits of one process: PPO with a critic and a KL term,
// buckets, validation; and a checkpoint saved by several resumes on another number of them.
func TestRanksGiveTheSameBits(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	train := func(name string, args ...string) {
		t.Helper()
		mustIn(t, dir, append([]string{"train", config, "run.name=" + name, "fsdp.deterministic=true",
			"fsdp.lanes=4"}, args...)...)
	}
	train("one")
	for _, n := range orThorough([]string{"2"}, []string{"2", "4"}) {
		train("r"+n, "--ranks", n)
		sameRun(t, filepath.Join(dir, "runs/one"), filepath.Join(dir, "runs/r"+n))
	}
	// Saved by two ranks that hold half of everything, resumed by one that holds it all.
	train("moved", "--ranks", "2", "run.steps=3", "fsdp.shard=full")
	train("moved", "--resume")
	sameRun(t, filepath.Join(dir, "runs/one"), filepath.Join(dir, "runs/moved"))
}

// Without lanes the order of additions is all that differs: on given episodes two steps of GRPO agree closely,
// whatever the number of ranks, some of which have no sample.
func TestRanksAgree(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	mustIn(t, dir, "train", config, "run.name=source", "run.steps=2", "analysis.enabled=false")
	replay := filepath.Join(dir, "episodes.jsonl")
	if err := os.WriteFile(replay, slices.Concat(readFile(t, filepath.Join(dir, "runs/source/rollouts/step_1.jsonl")),
		readFile(t, filepath.Join(dir, "runs/source/rollouts/step_2.jsonl"))), 0o644); err != nil {
		t.Fatal(err)
	}
	train := func(name string, args ...string) string {
		t.Helper()
		mustIn(t, dir, append([]string{"train", config, "run.name=" + name, "run.steps=2", "--replay", replay,
			"algorithm.advantage=grpo", "algorithm.norm_by_std=false",
			"actor.mini_batch=3", "analysis.every=1", "actor.eps=1e-3"}, args...)...)
		return filepath.Join(dir, "runs", name)
	}
	one := train("one")
	for _, n := range orThorough([]string{"4"}, []string{"2", "3", "4"}) { // one of 4 has none of three samples
		many := train("r"+n, "--ranks", n)
		closeMetrics(t, one, many, 1e-4)
		if d := farthest(t, filepath.Join(one, "global_step_2/actor/model.safetensors"),
			filepath.Join(many, "global_step_2/actor/model.safetensors")); d > 1e-6 {
			t.Errorf("%s ranks: weights differ by %g of the largest", n, d)
		}
	}
}

// Supervised fine-tuning and the analysis of a checkpoint over ranks.
func TestSFTAndAnalyzeOverRanks(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	sft := func(name string, args ...string) string {
		mustIn(t, dir, append([]string{"sft", config, "run.name=" + name, "sft.episodes=20",
			"sft.validation_episodes=5", "sft.epochs=1", "sft.batch=7", "actor.eps=1e-3"}, args...)...)
		return filepath.Join(dir, "runs", name)
	}
	one, many := sft("sft1"), sft("sft3", "--ranks", "3")
	closeMetrics(t, one, many, 1e-4)
	if d := farthest(t, one+"/global_step_1/actor/model.safetensors",
		many+"/global_step_1/actor/model.safetensors"); d > 1e-6 {
		t.Errorf("weights differ by %g of the largest", d)
	}
	var found [2]map[string]any
	for i, args := range [][]string{nil, {"--ranks", "2"}} {
		out := mustIn(t, dir, append([]string{"analyze", config, "--checkpoint", one, "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &found[i]); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
	}
	for name, v := range found[0] {
		x, number := v.(float64)
		if y, ok := found[1][name].(float64); number && (!ok || math.Abs(x-y) > 1e-4*math.Max(math.Abs(x), 1e-2)) {
			t.Errorf("%s = %v, want %v", name, found[1][name], v)
		}
	}
}

// ranksOf lists the processes of a launcher that are ranks, by their rank.
func ranksOf(t *testing.T, launcher int) map[int]int {
	t.Helper()
	out := map[int]int{}
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	for _, path := range children {
		text, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(field)
			environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			for _, entry := range bytes.Split(environment, []byte{0}) {
				if value, ok := bytes.CutPrefix(entry, []byte("GYRE_RANK=")); ok {
					rank, _ := strconv.Atoi(string(value))
					out[rank] = pid
				}
			}
		}
	}
	return out
}

// undone starts a run over three ranks, does something to one of them at some moment, and waits for the end, which
// must come within 30 s with one message that names the rank, exit code 1 and an end in run.json. It reports whether
// the run was through before.
func undone(t *testing.T, dir, name string, args []string, moment func(), rank int, signal syscall.Signal,
	cause string) (through bool) {
	t.Helper()
	cmd := gyre(t, dir, append([]string{"train", "tiny.toml", "--ranks", "3", "--resume", "run.name=" + name},
		args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var pids map[int]int
	for begun := time.Now(); len(pids) < 3; pids = ranksOf(t, cmd.Process.Pid) {
		if time.Since(begun) > time.Minute {
			cmd.Process.Kill()
			t.Fatalf("after a minute the launcher has the ranks %v: %s", pids, errs.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	moment()
	struck := syscall.Kill(pids[rank], signal) == nil
	begun := time.Now()
	select {
	case <-done:
	case <-time.After(time.Minute):
		cmd.Process.Kill()
		t.Fatalf("the run goes on a minute after rank %d was sent %v: %s", rank, signal, errs.String())
	}
	took, code := time.Since(begun), cmd.ProcessState.ExitCode()
	for rank, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			t.Errorf("rank %d (process %d) is left", rank, pid)
		}
	}
	if code == 0 || !struck {
		return true
	}
	host, _ := os.Hostname()
	want := fmt.Sprintf("gyre: rank %d on %s: ", rank, host)
	if text := errs.String(); code != exitcode.Failed || took > 30*time.Second || strings.Count(text, "gyre: rank ") != 1+
		strings.Count(text, "gyre: rank 0 of 3") ||
		!strings.Contains(text, want) || strings.Count(text, cause) != 1 {
		t.Fatalf("%v after %v was sent, exit code %d: want %d and one message with %q and %q within 30 s:\n%s", took,
			signal, code, exitcode.Failed, want, cause, text)
	}
	info, err := rundir.ReadInfo(filepath.Join(dir, "runs", name))
	if err != nil || info != nil && !(info.Status == "failed" && strings.Contains(info.Reason, "rank ") &&
		info.Ranks == 3 && info.Shard != "" || info.Status == "done") {
		t.Errorf("run.json after rank %d was sent %v: %+v, %v", rank, signal, info, err)
	}
	saved, _ := filepath.Glob(filepath.Join(dir, "runs", name, "global_step_*"))
	t.Logf("rank %d was sent %v: the run ended within %v; its newest checkpoint is %s", rank, signal,
		took.Round(time.Millisecond), filepath.Base(append([]string{"none"}, saved...)[len(saved)]))
	return false
}

// saving gives a wait for the next checkpoint of a run to be under way, of at most so long; what earlier runs left
// half written is not meant.
func saving(folder string, atMost time.Duration) func() {
	unfinished := func() []string {
		found, _ := filepath.Glob(filepath.Join(folder, atomicfile.Prefix+"global_step_*"))
		return found
	}
	before := unfinished()
	return func() {
		for begun := time.Now(); time.Since(begun) < atMost; time.Sleep(time.Millisecond) {
			if slices.ContainsFunc(unfinished(), func(name string) bool { return !slices.Contains(before, name) }) {
				return
			}
		}
	}
}

// A rank that is killed ends the run with one message that names it, and what is resumed equals the undisturbed run.
// The moments are random, and every third is one in which a checkpoint is being saved.
func TestLostRanksEndTheRun(t *testing.T) {
	t.Parallel()
	calm, alone := calmRun(t)
	stormy := t.TempDir()
	ranksConfig(t, stormy)
	random := rand.New(rand.NewPCG(testSeed(t), 2))
	folder := filepath.Join(stormy, "runs/tiny")
	for n := 0; n < orThorough(2, 20); n++ {
		rank, moment := random.IntN(3), func() { time.Sleep(time.Duration(random.Int64N(2 * int64(alone)))) }
		if n%3 == 2 {
			moment = saving(folder, time.Minute)
		}
		args := append(slices.Clone(sure), "fsdp.shard="+[]string{"auto", "full"}[n%2]) // another mode may go on
		if !undone(t, stormy, "tiny", args, moment, rank, syscall.SIGKILL, "SIGKILL") {
			continue
		}
		sameRun(t, calm, folder)
		os.RemoveAll(folder)
		n--
	}
	mustGyre(t, stormy, append([]string{"train", "tiny.toml", "--ranks", "3", "--resume"}, sure...)...)
	sameRun(t, calm, folder)
}

// With --restarts the launcher continues by itself.
func TestRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	cmd := gyre(t, dir, "train", config, "--ranks", "2", "--restarts", "1", "run.steps=8")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, cmd, filepath.Join(dir, "runs/tiny/global_step_2/manifest.json"))
	if err := syscall.Kill(ranksOf(t, cmd.Process.Pid)[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(errs.String(), "it was ended by SIGKILL") ||
		!strings.Contains(errs.String(), "restarting from the newest checkpoint (1 of 1)") {
		t.Errorf("%v:\n%s", err, errs.String())
	}
	if lines := len(steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))); lines != 9 {
		t.Errorf("%d lines of metrics, want 9", lines)
	}
}

// What is wrong with the request is said once, before any process is started.
func TestWrongRequestsForRanks(t *testing.T) {
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	for want, args := range map[string][]string{
		"--ranks is 0":                   {"--ranks", "0"},
		"--restarts needs --ranks":       {"--restarts", "2"},
		"fsdp.lanes = 4 for 3 ranks":     {"--ranks", "3", "fsdp.deterministic=true"},
		"fsdp.replicas = 2, but 3 ranks": {"--ranks", "3", "fsdp.replicas=2"},
		"--device is for plans":          {"--device", "h100"},
		"GPUs of this machine: none: ":   {"--ranks", "2", "model.device=cuda"},
		`no device "h1000" is known`:     {"--dry-run", "--device", "h1000"},
	} {
		code, _, stderr := runIn(t, dir, append([]string{"train", config}, args...)...)
		if code != exitcode.Usage || strings.Count(stderr, "gyre:") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, want %d and %q once:\n%s", args, code, exitcode.Usage, want, stderr)
		}
	}
	// A run that is there is refused by rank 0, and the message is said once.
	mustIn(t, dir, "train", config, "run.steps=1", "run.validate_first=false")
	code, _, stderr := runIn(t, dir, "train", config, "run.steps=1", "--ranks", "2")
	if code != exitcode.Usage || strings.Count(stderr, "already holds a run") != 1 {
		t.Errorf("exit code %d:\n%s", code, stderr)
	}
}

// A rank of another size, configuration or build (the same program, but for one byte) is named by every rank.
func TestRanksThatDoNotFitAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := ranksConfig(t, dir)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, append(readFile(t, program), 0), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, x := range map[string]struct {
		program, size string
		args          []string
	}{
		"it takes part in a run of 3 ranks, expected 2": {program, "3", nil},
		"its configuration has the hash ":               {program, "2", []string{"actor.lr=0.5"}},
		"install the same build on every machine":       {other, "2", nil},
	} {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := free.Addr().String()
		free.Close()
		var said [2]bytes.Buffer
		var all [2]*exec.Cmd
		for rank := range all {
			cmd := gyre(t, dir, "train", config)
			cmd.Env = append(cmd.Env, "RANK="+strconv.Itoa(rank), "WORLD_SIZE=2", "GYRE_RENDEZVOUS="+address,
				"GYRE_THREADS=1")
			if rank == 1 {
				cmd.Path, cmd.Args = x.program, append(cmd.Args, x.args...)
				cmd.Env = append(cmd.Env, "WORLD_SIZE="+x.size)
			}
			cmd.Stderr = &said[rank]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all[rank] = cmd
		}
		for rank, cmd := range all {
			cmd.Wait()
			if text := said[rank].String(); cmd.ProcessState.ExitCode() != exitcode.Failed ||
				!strings.Contains(text, "rank 1 on ") || !strings.Contains(text, want) {
				t.Errorf("rank %d: exit code %d, want %d and %q of rank 1:\n%s", rank, cmd.ProcessState.ExitCode(),
					exitcode.Failed, want, text)
			}
		}
	}
}

// Plans need a config.json and nothing else, and say which setting would mend what does not fit.
func TestPlans(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(shape string, args ...string) string {
		return mustIn(t, root, append([]string{"train", "configs/sokoban_ppo_filter.toml",
			"model.path=configs/shapes/" + shape, "--dry-run", "--device", "h100"}, args...)...)
	}
	for want, got := range map[string]string{
		"fits in the 80 GiB of h100":  plan("qwen2.5-3b", "--ranks", "8", "fsdp.shard=full"),
		"fsdp.shard = \"auto\": full": plan("qwen2.5-3b", "--ranks", "8"),
		"does NOT fit in the 80 GiB":  plan("qwen2.5-3b", "--ranks", "8", "fsdp.shard=none"),
		"would do: fsdp.shard=full":   plan("qwen2.5-3b", "--ranks", "8", "fsdp.shard=none"),
		"would do: 64 ranks with fsdp.shard=full, actor.recompute_activations=true, engine.tensor_parallel=4": plan("qwen2.5-32b", "--ranks", "8"),
		"128 ranks with fsdp.shard=full, actor.recompute_activations=true, engine.tensor_parallel=8":          plan("llama-3-70b", "--ranks", "8"),
		"groups over 32 teams of 4 ranks": plan("llama-3-70b", "--ranks", "128", "fsdp.shard=full",
			"engine.tensor_parallel=4"),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the plan does not say %q:\n%s", want, got)
		}
	}
}

// The plans of the experiments' commands are those of testdata/plans.md, which docs/scale.md sums up.
func TestPlansOfTheCommands(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "gyre")
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\nGYRE_TEST_COMMAND=1 exec "+binary+" \"$@\"\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "../../scripts/plan_commands.sh")
	cmd.Env = append(os.Environ(), "GYRE="+program)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	table, err := cmd.Output()
	if want := readFile(t, "testdata/plans.md"); err != nil || !bytes.Equal(table, want) {
		t.Errorf("bash scripts/plan_commands.sh says another table than testdata/plans.md: %v\n%s%s", err, table,
			problems.String())
	}
}
