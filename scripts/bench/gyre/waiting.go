package gyre

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"gyre/scripts/bench/work"
	"gyre/scripts/bench/worker"
)

const (
	waitingSteps = 7 // of a run
	settled      = 3 // the first of them that is measured
)

// waitingConfig adds environments of a server. All 32 episodes may wait for it at once.
const waitingConfig = `
[[envs]]
tag = "RemoteText"
groups = 8
group_size = 4
max_turns = %d
options = { url = %q }
[rollout]
prompt = "compact"
think = false
max_tokens = 32
max_length = 1024
env_workers = 256
staleness = %d
`

// waiting trains a small policy on environments of this process, each call of which takes a while, and reports the mean
// time of a step.
func (s *server) waiting(t work.Task, folder string) (worker.Figures, error) {
	environments := httptest.NewServer(&slowEnvironments{turns: t.Turns, wait: t.Seconds})
	defer environments.Close()
	model := filepath.Join(folder, "model")
	if err := s.gyre("model", "init", model, "--hidden", "384", "--layers", "8", "--heads", "6", "--kv-heads", "3",
		"--intermediate", "1024"); err != nil {
		return worker.Figures{}, err
	}
	document := fmt.Sprintf(runConfig+waitingConfig, folder, model, string(s.On.Compute), 16, t.Turns, environments.URL,
		s.Staleness)
	step, err := s.command(folder, document, settled, "run.steps="+strconv.Itoa(waitingSteps),
		"run.threads="+strconv.Itoa(s.Threads))
	return worker.Figures{Tokens: t.Copies, Seconds: step["timing_s/step"], ChildBytes: peak(step),
		Parts: map[string]float64{"waiting": step["timing_s/env_wait"]}}, err
}

// slowEnvironments serves environments that ask for any text (docs/remote-environments.md). A call takes wait seconds
// on average.
type slowEnvironments struct {
	turns int
	wait  float64
	made  atomic.Int64
}

func (e *slowEnvironments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Count int
		Items []struct {
			ID     string
			Seq    int
			Action string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var ids []string
	var items []any
	for range in.Count {
		ids = append(ids, strconv.FormatInt(e.made.Add(1), 10))
	}
	for _, item := range in.Items {
		items = append(items, map[string]any{"id": item.ID, "observation": map[string]string{"text": "Write down " +
			"anything you like, and count the words of it."}, "reward": len(item.Action) % 2,
			"done": item.Seq >= e.turns})
	}
	if r.URL.Path == "/reset" || r.URL.Path == "/step" {
		time.Sleep(time.Duration((0.5 + rand.Float64()) * e.wait * float64(time.Second)))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"ids": ids, "items": items}) // who asked has left
}
