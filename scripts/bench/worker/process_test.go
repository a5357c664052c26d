package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is a worker too when this variable says how it behaves.
const behaviour = "GYRE_BENCH_TEST_WORKER"

func TestMain(m *testing.M) {
	if how := os.Getenv(behaviour); how != "" {
		fake(how)
		return
	}
	os.Exit(m.Run())
}

func fake(how string) {
	switch how {
	case "absent":
		fmt.Println(`{"unavailable": "ModuleNotFoundError: no module"}`)
		return
	case "babbling":
		fmt.Println("Loading weights: 100%")
		return
	case "dying":
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(3)
	}
	fmt.Println(`{"hello": {"program": "fake", "versions": {"fake": "1.2"}, "notes": ["a note"]}}`)
	tasks := bufio.NewScanner(os.Stdin)
	for tasks.Scan() {
		switch task := tasks.Text(); {
		case strings.Contains(task, "hang"):
			time.Sleep(time.Hour)
		case strings.Contains(task, "die"):
			fmt.Fprintln(os.Stderr, "segmentation fault")
			os.Exit(3)
		case strings.Contains(task, "fail"):
			fmt.Println(`{"error": "ValueError: no"}`)
		default:
			fmt.Printf("{\"figures\": {\"seconds\": 0.5, \"tokens\": %d}}\n", len(task))
		}
	}
}

func start(t *testing.T, how string) (*Process, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), behaviour+"="+how)
	return Start(context.Background(), "fake", command)
}

func TestWorkerAnswersTaskAfterTask(t *testing.T) {
	p, err := start(t, "willing")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.Hello.Versions["fake"] != "1.2" || len(p.Hello.Notes) != 1 {
		t.Errorf("hello is %+v", p.Hello)
	}
	for _, task := range []string{"a", "bcd"} {
		f, err := p.Run(context.Background(), task, time.Minute)
		if err != nil || f.Seconds != 0.5 || f.Tokens != len(task)+2 { // as a JSON string
			t.Errorf("task %q gives %+v, %v", task, f, err)
		}
		if _, err := p.Run(context.Background(), "fail", time.Minute); err == nil || errors.Is(err, ErrGone) ||
			!strings.Contains(err.Error(), "fake: ValueError: no") {
			t.Errorf("a task that fails gives %v, expected an error after which the worker goes on", err)
		}
	}
}

func TestWorkersThatCannotStart(t *testing.T) {
	for how, want := range map[string]string{"absent": "no module", "babbling": "Loading weights",
		"dying": "out of memory"} {
		_, err := start(t, how)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q in the error", how, err, want)
		}
		if errors.Is(err, ErrUnavailable) != (how == "absent") {
			t.Errorf("%s: %v: only an absent program is unavailable", how, err)
		}
	}
	if _, err := Start(context.Background(), "x", exec.Command("/no/such/python")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("a missing executable gives %v, expected ErrUnavailable", err)
	}
}

func TestWorkersThatGo(t *testing.T) {
	for task, want := range map[string]string{"die": "segmentation fault", "hang": "no answer within"} {
		p, err := start(t, "willing")
		if err != nil {
			t.Fatal(err)
		}
		limit := map[string]time.Duration{"die": time.Minute, "hang": 200 * time.Millisecond}[task]
		if _, err = p.Run(context.Background(), task, limit); !errors.Is(err, ErrGone) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected ErrGone and %q", task, err, want)
		}
		p.stop(0)
	}
}

func TestCloseEndsTheProcess(t *testing.T) {
	p, err := start(t, "willing")
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	if err := syscall.Kill(p.running.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there (%v): it was not ended, or not waited for", p.running.PID(), err)
	}
	p.Close() // once more does no harm
}
