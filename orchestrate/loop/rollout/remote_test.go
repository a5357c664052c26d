package rollout

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "gyre/envs/remote"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// A batch that mixes four sources, one on a server that dies half-way and one in a process that hangs once, is played to its end:
// what failed is counted, the rest is whole, and a later batch has the process back. How many calls of the two run out of time on a busy
// machine is left open.
func TestMixedSourcesWithAServerThatDiesAndAProcessThatHangs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || testing.Short() {
		t.Skip("no python3, or no time for it")
	}
	program, err := filepath.Abs("../../../scripts/remote_env.py")
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("../../../envs/remote/testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", data)
	server := exec.Command(python, program, "--factory", "walk:make", "--port", "0")
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		server.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))

	sampler := &script{t: t, tokenizer: tokenizer(t), forgets: true}
	sampler.reply = func(uint64, int) string { return "</think><answer>Right</answer>" + eos }
	rollout := defaults()
	rollout.EnvTimeout = 10
	p := player(t, sampler, rollout)
	remote := source(4, 2, map[string]any{"url": url, "patience": 3.0, "config": `{"fault": "die", "after": 7}`}) // of at least sixteen steps
	process := source(2, 2, map[string]any{"command": []any{python, program, "--factory", "walk:make", "--stdio"},
		"config": fmt.Sprintf(`{"fault": "hang", "once": %q}`, filepath.Join(t.TempDir(), "hung"))})
	remote.Tag, process.Tag = "Remote", "Remote"
	judged := config.Env{Tag: "judge", Groups: 2, GroupSize: 2, MaxTurns: 2, MaxActionsPerTurn: 1}
	plan := Plan{Stream: Train, Step: 1, Sources: []config.Env{source(2, 2, nil), judged, remote, process}, Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	episodes, stats, err := p.Play(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(episodes) != 20 {
		t.Fatalf("%d episodes", len(episodes))
	}
	var native, served, piped int // episodes that failed
	for i, e := range episodes {
		if e.Stop == episode.Timeout || e.Stop == episode.Error {
			switch { // in the order of the sources
			case i < 8:
				native++
			case i < 16:
				served++
			default:
				piped++
			}
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
	}
	if native != 0 || served == 0 || piped == 0 {
		t.Errorf("%d native episodes failed, %d on the server, %d in the process: %v", native, served, piped, stats.Failures)
	}
	failed := native + served + piped
	if m := stats.Metrics(); failed != len(stats.Failures) || math.Round(20*(m["rollout/stop/timeout"]+m["rollout/stop/error"])) != float64(failed) {
		t.Errorf("%d failed, %d are listed, metrics %v", failed, len(stats.Failures), m)
	}
	plan.Sources = []config.Env{process, source(1, 2, nil)}
	for plan.Step = 2; ; plan.Step++ {
		sampler.turns, sampler.episodes = nil, nil
		if _, stats, err = p.Play(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if len(stats.Failures) == 0 {
			break
		}
		if plan.Step == 12 {
			t.Fatalf("the process is not back: %v", stats.Failures)
		}
	}
	if err := p.Close(); err != nil {
		t.Log("closing:", err) // the dead server's environments cannot be let go
	}
}
