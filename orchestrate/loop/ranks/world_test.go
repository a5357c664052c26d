package ranks

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gyre/internal/child/childtest"
	"gyre/orchestrate/run/interrupt"
	"gyre/torch"
)

// A rank of these tests is this test binary, told by the environment what to do.
const (
	envBody   = "GYRE_RANKS_TEST"
	envFolder = "GYRE_RANKS_TEST_FOLDER" // of files by which a test and its ranks tell each other things
)

// bodies are what ranks do after they have joined.
var bodies = map[string]func(ctx context.Context, w *World) error{
	"barriers": barriers,
	"ends":     func(ctx context.Context, w *World) error { return w.Group().Barrier(ctx) },
	// Rank 1 fails while rank 0 waits for it and rank 2 for nobody.
	"fails": func(ctx context.Context, w *World) error {
		if w.Rank() == 1 {
			return errors.New("the loss is not a number")
		}
		if w.Rank() == 2 {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return w.Group().Barrier(ctx)
	},
	// Rank 1 neither ends nor listens.
	"deaf": func(ctx context.Context, w *World) error {
		if w.Rank() == 1 {
			select {}
		}
		return errors.New("enough")
	},
	// The first time rank 1 crashes.
	"second": func(ctx context.Context, w *World) error {
		if w.Rank() == 1 && !slices.Contains(os.Args, "--resume") {
			fmt.Fprintln(os.Stderr, "panic: the first time")
			os.Exit(2)
		}
		return w.Group().Barrier(ctx)
	},
	"signal": func(ctx context.Context, w *World) error {
		mark(w, "waits")
		<-interrupt.Graceful(ctx)
		return interrupt.Cause(ctx)
	},
}

// barriers go on until the test has seen enough.
func barriers(ctx context.Context, w *World) error {
	for {
		if err := w.Group().Barrier(ctx); err != nil {
			return err
		}
		mark(w, "waits")
		if _, err := os.Stat(filepath.Join(os.Getenv(envFolder), "enough")); err == nil && w.Rank() == 0 {
			return errors.New("enough")
		}
	}
}

// mark leaves this process's number.
func mark(w *World, what string) {
	path := filepath.Join(os.Getenv(envFolder), what+strconv.Itoa(w.Rank()))
	if os.WriteFile(path+".new", strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o600) == nil {
		os.Rename(path+".new", path)
	}
}

func TestMain(m *testing.M) {
	body := os.Getenv(envBody)
	if body == "" {
		flag.Parse()
		if err := flag.Set("test.parallel", "8"); err != nil { // these tests wait for other processes
			panic(err)
		}
		os.Exit(m.Run())
	}
	usual.beat = 5 * time.Second // a third of what users have: a test waits for it
	// a launcher that a test can kill
	if launch, ok := strings.CutPrefix(body, "launch "); ok && os.Getenv(envRank) == "" {
		os.Setenv(envBody, launch)
		err := Launch{Ranks: 2, Stdout: os.Stdout, Stderr: os.Stderr}.Run(context.Background())
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(beRank(strings.TrimPrefix(body, "launch ")))
}

func beRank(body string) int {
	ctx, stop := interrupt.Watch(context.Background(), os.Stderr, os.Exit)
	defer stop()
	place, _, err := Recognise()
	if err != nil {
		panic(err)
	}
	version := "v1"
	if place.Rank == 1 && os.Getenv("OTHER_BUILD") != "" {
		version = "v2"
	}
	torch.SetThreads(1)
	told := func(f *Failure) { fmt.Fprintln(os.Stderr, "recorded:", f) }
	ctx, w, err := Join(ctx, place, Options{Version: version, Folder: os.Getenv(envFolder), Timeout: 2 * time.Minute,
		Failed: told})
	if err == nil {
		err = bodies[body](ctx, w)
		var interrupted *interrupt.Error
		if errors.As(err, &interrupted) {
			err = w.Conclude(err, interrupted.ExitCode(), true)
		} else {
			err = w.Conclude(err, 3, false)
		}
	}
	var ended *Ended
	switch {
	case errors.As(err, &ended):
		if !ended.Reported {
			fmt.Fprintln(os.Stderr, "gyre:", ended)
		}
		return ended.Code
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// environments start three ranks in different ways.
func environments(t *testing.T) map[string]func(rank int) []string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	return map[string]func(rank int) []string{
		"mpirun": func(rank int) []string { // one machine: a file
			return []string{fmt.Sprint("OMPI_COMM_WORLD_RANK=", rank), "OMPI_COMM_WORLD_SIZE=3",
				fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", rank), "OMPI_COMM_WORLD_LOCAL_SIZE=3",
				"PMIX_NAMESPACE=" + t.Name()}
		},
		"PyTorchJob": func(rank int) []string { // rank 0 serves
			return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
				"KUBERNETES_SERVICE_HOST=x", envToken + "=secret"}
		},
	}
}

// started are three ranks under a launcher that is not ours.
type started struct {
	ranks [3]*exec.Cmd
	said  [3]bytes.Buffer
	dir   string
}

func start(t *testing.T, body string, environment func(rank int) []string) *started {
	t.Helper()
	s := &started{dir: t.TempDir()}
	for rank := range s.ranks {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(append(os.Environ(), envBody+"="+body, envFolder+"="+s.dir), environment(rank)...)
		cmd.Stderr = &s.said[rank]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.ranks[rank] = cmd
	}
	return s
}

// comes waits for a file that a rank leaves.
func comes(t *testing.T, path string) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("%s does not come", path)
		}
	}
}

// A rank that fails, is killed or is stopped is named with its host and the cause by exactly one of the others, and
// ends them all.
func TestFailuresOfRanks(t *testing.T) {
	host, _ := os.Hostname()
	for _, launcher := range []string{"mpirun", "PyTorchJob"} {
		for _, x := range []struct {
			body   string
			signal syscall.Signal
			rank   int
			want   string
			code   int
		}{
			{"fails", 0, 1, "the loss is not a number", 3},
			{"barriers", syscall.SIGKILL, 1, "no sign of life for 5s: process ", 1},
			{"barriers", syscall.SIGKILL, 0, "", 1},
			{"barriers", syscall.SIGSTOP, 2, "no sign of life for 5s: process ", 1},
			{"barriers", syscall.SIGSTOP, 0, "", 1},
		} {
			t.Run(fmt.Sprintf("%s %s %v of rank %d", launcher, x.body, x.signal, x.rank), func(t *testing.T) {
				t.Parallel()
				s := start(t, x.body, environments(t)[launcher])
				if x.signal != 0 {
					comes(t, filepath.Join(s.dir, "waits"+strconv.Itoa(x.rank)))
					if err := s.ranks[x.rank].Process.Signal(x.signal); err != nil {
						t.Fatal(err)
					}
				}
				begun, all := time.Now(), ""
				for rank, cmd := range s.ranks {
					if x.signal != 0 && rank == x.rank {
						continue
					}
					cmd.Wait()
					all += s.said[rank].String()
					if code := cmd.ProcessState.ExitCode(); code != x.code {
						t.Errorf("rank %d: exit code %d, want %d: %s", rank, code, x.code, s.said[rank].String())
					}
				}
				if took := time.Since(begun); took > 30*time.Second {
					t.Errorf("took %v", took)
				}
				switch victim := s.ranks[x.rank]; x.signal {
				case syscall.SIGSTOP:
					childtest.Kill(t, victim) // it was still there
				case syscall.SIGKILL:
					victim.Wait()
					if !childtest.EndedBy(victim, syscall.SIGKILL) {
						t.Errorf("rank %d was to be killed: %v", x.rank, victim.ProcessState)
					}
				}
				want := fmt.Sprintf("gyre: rank %d on %s: ", x.rank, host)
				if !strings.Contains(all, want+x.want) || strings.Count(all, "gyre: rank ") != 1 ||
					strings.Count(all, "recorded: ") != 1 {
					t.Errorf("want %q and %q once in:\n%s", want, x.want, all)
				}
			})
		}
	}
}

// A rank of another build is named before anything is computed, by itself too.
func TestOtherBuildIsNamed(t *testing.T) {
	t.Parallel()
	s := start(t, "ends", func(rank int) []string { return append(environments(t)["mpirun"](rank), "OTHER_BUILD=1") })
	for rank, cmd := range s.ranks {
		cmd.Wait()
		if text := s.said[rank].String(); cmd.ProcessState.ExitCode() != 1 || (rank < 2) != strings.Contains(text,
			"it is gyre v2, expected v1: install the same build") {
			t.Errorf("rank %d: %v: %s", rank, cmd.ProcessState, text)
		}
	}
}

// torchrun's agent serves the store: no rank may open one.
func TestAgentStore(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	agent, err := torch.OpenTCPStore(l.Addr().String(), l, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	for attempt := range 2 { // one store, two launches
		s := start(t, "ends", func(rank int) []string {
			return []string{fmt.Sprint("RANK=", rank), "WORLD_SIZE=3", fmt.Sprint("LOCAL_RANK=", rank),
				"LOCAL_WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port),
				"TORCHELASTIC_RUN_ID=x", fmt.Sprint("TORCHELASTIC_RESTART_COUNT=", attempt),
				"TORCHELASTIC_USE_AGENT_STORE=True"}
		})
		for rank, cmd := range s.ranks {
			if err := cmd.Wait(); err != nil {
				t.Errorf("attempt %d, rank %d: %v: %s", attempt, rank, err, s.said[rank].String())
			}
		}
	}
}

// launched runs Launch with ranks of this binary.
func launched(t *testing.T, ctx context.Context, body string, l Launch) (string, error) {
	t.Helper()
	var said bytes.Buffer
	t.Setenv(envBody, body)
	l.Stdout, l.Stderr = &said, &said
	err := l.Run(ctx)
	return said.String(), err
}

func TestLaunch(t *testing.T) {
	t.Setenv(envFolder, t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	if text, err := launched(t, t.Context(), "ends", Launch{Ranks: 3}); err != nil || text != "" {
		t.Errorf("%v: %s", err, text)
	}
	var ended *Ended
	text, err := launched(t, t.Context(), "fails", Launch{Ranks: 3})
	if host, _ := os.Hostname(); !errors.As(err, &ended) || ended.Code != 3 || ended.Reported ||
		err.Error() != fmt.Sprintf("rank 1 on %s: the loss is not a number", host) || text != "" {
		t.Errorf("%v: %s", err, text)
	}
	text, err = launched(t, t.Context(), "second", Launch{Ranks: 2})
	if !errors.As(err, &ended) || ended.Code != 1 ||
		!strings.Contains(err.Error(), "it ended with exit code 2; it crashed:\npanic: the first time") {
		t.Errorf("%v: %s", err, text)
	}
	text, err = launched(t, t.Context(), "second", Launch{Ranks: 2, Restarts: 1, Resume: "--resume"})
	if err != nil || !strings.Contains(text, "restarting from the newest checkpoint (1 of 1)") {
		t.Errorf("%v: %s", err, text)
	}
	begun := time.Now()
	text, err = launched(t, t.Context(), "deaf", Launch{Ranks: 2})
	if !errors.As(err, &ended) || ended.Code != 3 || !strings.Contains(err.Error(), "rank 0 on ") ||
		time.Since(begun) > time.Minute {
		t.Errorf("after %v: %v: %s", time.Since(begun), err, text)
	}
	if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

// A request to stop reaches all ranks, and is not a failure.
func TestLaunchPassesSignalsOn(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envFolder, dir)
	ctx, stop := interrupt.Watch(t.Context(), new(bytes.Buffer), func(int) { t.Error("taken for a second signal") })
	defer stop()
	go func() {
		for rank := range 2 {
			comes(t, filepath.Join(dir, "waits"+strconv.Itoa(rank)))
		}
		syscall.Kill(os.Getpid(), syscall.SIGINT)
	}()
	var ended *Ended
	if text, err := launched(t, ctx, "signal", Launch{Ranks: 2}); !errors.As(err, &ended) || ended.Code != 130 ||
		!ended.Reported {
		t.Errorf("%v: %s", err, text)
	}
}

// A rank that is killed or stopped is named by the launcher, with what the launcher knows of it; ranks end with a
// launcher that is killed.
func TestLaunchSeesRanksEnd(t *testing.T) {
	for _, x := range []struct {
		signal syscall.Signal
		rank   int
		want   string
	}{
		{syscall.SIGKILL, 1, "it was ended by SIGKILL"}, {syscall.SIGKILL, 0, "it was ended by SIGKILL"},
		{syscall.SIGSTOP, 1, "no sign of life for 5s"}, {syscall.SIGSTOP, 0, "no sign of life for 5s"},
		{syscall.SIGKILL, -1, ""},
	} {
		t.Run(fmt.Sprintf("%v of rank %d", x.signal, x.rank), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), envBody+"=launch barriers", envFolder+"="+dir, "TMPDIR="+t.TempDir())
			var said bytes.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pids := []int{}
			for rank := range 2 {
				path := filepath.Join(dir, "waits"+strconv.Itoa(rank))
				comes(t, path)
				text, err := os.ReadFile(path)
				pid, _ := strconv.Atoi(string(text))
				if err != nil || pid == 0 {
					t.Fatalf("%q, %v", text, err)
				}
				pids = append(pids, pid)
			}
			victim := cmd.Process.Pid
			if x.rank >= 0 {
				victim = pids[x.rank]
			}
			for _, pid := range append(pids, victim) {
				if !childtest.Alive(pid) {
					t.Errorf("process %d had ended before %v was sent", pid, x.signal)
				}
			}
			if err := syscall.Kill(victim, x.signal); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			cmd.Wait()
			if killed := childtest.EndedBy(cmd, syscall.SIGKILL); killed != (x.rank < 0) {
				t.Errorf("the launcher ended with %v", cmd.ProcessState)
			}
			for _, pid := range pids {
				for childtest.Alive(pid) {
					if time.Since(begun) > time.Minute {
						t.Fatalf("process %d goes on", pid)
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("took %v", took)
			}
			if want := regexp.MustCompile(fmt.Sprintf(`^rank %d on \S+: %s`, x.rank, x.want)); x.rank >= 0 &&
				!want.MatchString(said.String()) {
				t.Errorf("want %v, got %s", want, said.String())
			}
		})
	}
}
