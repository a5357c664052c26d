package gyre

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/trainer"
	"gyre/orchestrate/run/metrics"
	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
	"gyre/torch"
)

// grpo is a training run that stops after every step until the next is asked for.
type grpo struct {
	folder  string // the run's and the model's
	trainer *trainer.Trainer
	gate    *gate
	cancel  context.CancelFunc
	ended   chan error
}

const grpoConfig = `
[run]
name = "grpo"
steps = %d
threads = %d
output = %q
env_seed = 0
validate_every = 0
validate_first = false
save_every = -1
save_rollouts = "none"
[model]
path = %q
dtype = %q
device = %q
[[envs]]
tag = %q
groups = %d
group_size = %d
max_turns = 1
max_actions_per_turn = 1
[rollout]
prompt = "compact"
think = false
max_tokens = %d
max_length = %d
[filter]
strategy = "none"
[algorithm]
advantage = "grpo"
entropy_coef = 0
[actor]
lr = 1e-7
mini_batch = %[9]d
[analysis]
enabled = false
[early_stop]
spread_fraction = 0
low_success_count = 0
empty_steps = 0
`

// openGRPO starts a run of one step for each list of texts. Its first step begins with the first call of step.
func openGRPO(dir string, on torch.Placement, threads int, t work.Task, log io.Writer) (g *grpo, err error) {
	g = &grpo{gate: newGate(log), ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			g.close()
			g = nil
		}
	}()
	if g.folder, err = os.MkdirTemp("", "gyre-bench-"); err != nil {
		return g, err
	}
	model := filepath.Join(g.folder, "model")
	if err := plainModel(dir, model); err != nil {
		return g, err
	}
	prompt, err := registerTexts(t.Texts, model)
	if err != nil {
		return g, err
	}
	groups := len(t.Texts[0])
	c, err := config.Parse("benchmark", fmt.Appendf(nil, grpoConfig, len(t.Texts), threads, g.folder, model, string(on.Compute), on.Device, textTag, groups,
		t.Copies, t.New, prompt+t.New, groups*t.Copies), nil)
	if err != nil {
		return g, err
	}
	if g.trainer, err = trainer.New(context.Background(), c, trainer.Options{Console: metrics.NewConsole(g.gate)}); err != nil {
		return g, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.cancel = cancel
	go func() {
		g.gate.waitForTurn()
		_, err := g.trainer.Run(ctx)
		g.ended <- err
	}()
	return g, nil
}

// step is one training step, from asking for it to its line of metrics.
func (s *server) step(t work.Task) (worker.Figures, error) {
	if s.grpo == nil {
		g, err := openGRPO(s.dir, s.on, s.threads, t, s.log)
		if err != nil {
			return worker.Figures{}, err
		}
		s.grpo = g
	}
	begin := time.Now()
	s.grpo.gate.open()
	select {
	case line := <-s.grpo.gate.closed:
		seconds := time.Since(begin).Seconds()
		fmt.Fprint(s.log, line)
		parts, err := s.grpo.parts()
		return worker.Figures{Seconds: seconds, Parts: parts}, err
	case err := <-s.grpo.ended:
		s.grpo.ended <- err // close waits for it too
		return worker.Figures{}, fmt.Errorf("the run has ended: %w", errors.Join(err, errors.New("expected a step")))
	}
}

// parts are the timings among the metrics of the last step.
func (g *grpo) parts() (map[string]float64, error) {
	text, err := os.ReadFile(filepath.Join(g.folder, "grpo", "metrics.jsonl"))
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var values map[string]any
	if err := json.Unmarshal(lines[len(lines)-1], &values); err != nil {
		return nil, fmt.Errorf("the metrics of the step: %w", err)
	}
	parts := map[string]float64{}
	for name, value := range values {
		if part, ok := strings.CutPrefix(name, "timing_s/"); ok {
			parts[part], _ = value.(float64)
		}
	}
	return parts, nil
}

func (g *grpo) close() {
	if g == nil {
		return
	}
	if g.cancel != nil {
		g.cancel()
		g.gate.release()
		<-g.ended
	}
	if g.trainer != nil {
		g.trainer.Close()
	}
	if g.folder != "" {
		os.RemoveAll(g.folder)
	}
}

// gate is the console of a run that is held after every step: writing a step's line waits until the gate opens again.
type gate struct {
	log    io.Writer
	turn   chan struct{} // a value lets one step through, closing it all
	closed chan string   // the line of the step that has ended
	free   sync.Once
}

var stepLine = regexp.MustCompile(`^step +\d+/\d+ `)

func newGate(log io.Writer) *gate {
	return &gate{log: log, turn: make(chan struct{}, 1), closed: make(chan string, 1)}
}

func (g *gate) Write(text []byte) (int, error) {
	if !stepLine.Match(text) {
		return g.log.Write(text)
	}
	g.closed <- string(text)
	g.waitForTurn()
	return len(text), nil
}

func (g *gate) waitForTurn() { <-g.turn }

// open lets one step through.
func (g *gate) open() { g.turn <- struct{}{} }

// release lets everything through, for good.
func (g *gate) release() { g.free.Do(func() { close(g.turn) }) }
