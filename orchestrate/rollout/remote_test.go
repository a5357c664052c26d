package rollout

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "gyre/envs/remote"
	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
	"gyre/torch"
)

// A batch that mixes four sources, one on a server that is killed half-way and one in a process that hangs once, is played to its end:
// what failed is counted, the rest is whole, and the next batch has the process back.
func TestMixedSourcesWithAServerThatDiesAndAProcessThatHangs(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || testing.Short() {
		t.Skip("no python3, or no time for it")
	}
	program, err := filepath.Abs("../../scripts/remote_env.py")
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("../../envs/remote/testdata")
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
	kill := func() {
		syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		server.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(strings.TrimPrefix(line, "listening on "))

	replies := 0
	sampler := &script{t: t, tokenizer: tokenizer(t), forgets: true}
	sampler.reply = func(uint64, int) string {
		if replies++; replies == 30 {
			kill()
		}
		return "</think><answer>Right</answer>" + eos
	}
	rollout := defaults()
	rollout.EnvTimeout = 5
	p := player(t, sampler, rollout)
	remote := source(4, 2, map[string]any{"url": url})
	process := source(2, 2, map[string]any{"command": []any{python, program, "--factory", "walk:make", "--stdio"},
		"config": fmt.Sprintf(`{"fault": "hang", "once": %q}`, filepath.Join(t.TempDir(), "hung"))})
	remote.Tag, process.Tag = "Remote", "Remote"
	judged := config.Env{Tag: "judge", Groups: 2, GroupSize: 2, MaxTurns: 2, MaxActionsPerTurn: 1}
	plan := Plan{Stream: Train, Step: 1, Sources: []config.Env{source(2, 2, nil), judged, remote, process}, Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	episodes, stats, err := p.Play(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(episodes) != 20 || len(stats.Failures) == 0 || len(stats.Failures) > 12 {
		t.Fatalf("%d episodes, %d failures", len(episodes), len(stats.Failures))
	}
	failed := 0
	for i, e := range episodes {
		broken := e.Stop == episode.Timeout || e.Stop == episode.Error
		if broken {
			failed++
		}
		if broken && i < 8 {
			t.Errorf("episode %d of %s ended with %s", i, e.Tag, e.Stop)
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
	}
	if m := stats.Metrics(); failed != len(stats.Failures) || m["rollout/stop/timeout"]+m["rollout/stop/error"] != float64(failed)/20 {
		t.Errorf("%d failed, %d are listed, metrics %v", failed, len(stats.Failures), m)
	}
	plan.Step, plan.Sources = 2, []config.Env{process, source(1, 2, nil)}
	sampler.turns, sampler.episodes = nil, nil
	_, stats, err = p.Play(t.Context(), plan)
	if err != nil || len(stats.Failures) != 0 {
		t.Errorf("the next batch: %v, %v", stats.Failures, err)
	}
	if err := p.Close(); err != nil {
		t.Log("closing:", err) // the dead server's environments cannot be let go
	}
}
