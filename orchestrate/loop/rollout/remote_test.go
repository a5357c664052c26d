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
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// A batch that mixes four sources, one on a server that dies half-way and one in a process that hangs once, is played
// to its end: what failed is counted, the rest is whole, and a later batch has the process back. How many calls of
// the two run out of time on a busy machine is left open.
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

	sampler := &script{t: t, tokenizer: tokenizer(t), forgets: true, again: true}
	sampler.reply = func(uint64, int) string { return "</think><answer>Right</answer>" + eos }
	rollout := defaults()
	rollout.EnvTimeout = 10
	p := player(t, sampler, rollout)
	// of at least sixteen steps
	remote := source(4, 2, map[string]any{"url": url, "patience": 3.0, "config": `{"fault": "die", "after": 7}`})
	process := source(2, 2, map[string]any{"command": []any{python, program, "--factory", "walk:make", "--stdio"},
		"config": fmt.Sprintf(`{"fault": "hang", "once": %q}`, filepath.Join(t.TempDir(), "hung"))})
	remote.Tag, process.Tag = "Remote", "Remote"
	judged := config.Env{Tag: "judge", Groups: 2, GroupSize: 2, MaxTurns: 2, MaxActionsPerTurn: 1}
	plan := Plan{Stream: Train, Step: 1, Sources: []config.Env{source(2, 2, nil), judged, remote, process},
		Sampling: torch.Sampling{Temperature: 1, TopP: 1}}
	episodes, stats, err := p.Play(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, f := range stats.Failures {
		counts[f.Tag+f.Cause]++
	}
	remoteFailures := counts["Remotetimeout"] + counts["Remoteerror"]
	if len(episodes)+stats.LeftOut != 20 || stats.LeftOut == 0 ||
		remoteFailures != stats.Failed[episode.Timeout]+stats.Failed[episode.Error] {
		t.Errorf("%d episodes, %d left out, failed %v: %v", len(episodes), stats.LeftOut, stats.Failed, counts)
	}
	for i, e := range episodes {
		if err := e.Check(); err != nil || i < 8 && e.Index != i || e.Stop == episode.Timeout ||
			e.Stop == episode.Error {
			t.Errorf("episode %d of place %d ended with %s, %v: those of native environments are all there", e.Index,
				i, e.Stop, err)
		}
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
