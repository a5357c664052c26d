package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gyre/orchestrate/loop/episode"
)

// flaky is a server of environments with two groups of four to a training step. What it does to a seed depends on the
// step.
type flaky struct {
	mu    sync.Mutex // guards what follows
	made  int
	asked map[int64]int    // resets of each seed
	seeds map[string]int64 // of environments
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Items []struct {
			ID   string `json:"id"`
			Seed int64  `json:"seed"`
		} `json:"items"`
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/create" {
		f.made++
		fmt.Fprintf(w, `{"ids": ["e%d"]}`, f.made)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Items) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	fields, id := `"observation": {"text": "go"}`, q.Items[0].ID
	if r.URL.Path == "/reset" {
		seed := q.Items[0].Seed
		f.asked[seed]++
		f.seeds[id] = seed
		switch n := f.asked[seed]; seed - 10000 {
		case 2, 3: // the second step: away, whatever is asked
			fields = `"error": "away \u001b[2J"`
		case 4: // the third step: away for the first attempts of a group
			if n <= 4 {
				fields = `"error": "away"`
			}
		case 6: // the fourth step: a stop string that no engine takes
			fields += `, "stop": [""]`
		}
	} else {
		reward := "0.5"
		if f.seeds[id] == 10009 { // in the fifth step: each of two rewards is fine, their sum is not
			reward = "9e29"
		}
		fields += fmt.Sprintf(`, "reward": %s, "parts": [{"name": "hit", "value": 1}]`, reward)
	}
	fmt.Fprintf(w, `{"items": [{"id": %q, %s}]}`, id, fields)
}

// A run goes on through a step in which its environments are away, and through stop strings and rewards that cannot
// be, with reward components measured and episodes saved. Failures are counted, and nothing is computed from episodes
// that failed.
func TestARunOutlivesAnOutage(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewServer(&flaky{asked: map[int64]int{}, seeds: map[string]int64{}})
	defer server.Close()
	path := tinyConfig(t, dir, "[components]\nenabled = true\nevery = 1\n")
	_, stdout, stderr := runIn(t, dir, "train", path, "run.steps=5", "run.validate_every=0", "run.validate_first=true", "run.save_rollouts=all",
		"analysis.enabled=false", "envs.0.tag=RemoteText", "validation.envs.0.tag=RemoteText",
		"envs.0.options.url="+server.URL, "validation.envs.0.options.url="+server.URL, "filter.strategy=none")
	lines := steadyMetrics(t, filepath.Join(dir, "runs/tiny/metrics.jsonl"))
	if len(lines) != 6 { // with that of the validation before the first

		t.Fatalf("%d steps were made\n%s\n%s", len(lines), stdout, stderr)
	}
	for step, want := range map[int]string{1: "0 8 0 0", 2: "16 0 0 8", 3: "4 8 4 0", 4: "8 4 0 4", 5: "8 4 0 4"} {
		m := lines[step]
		got := fmt.Sprint(m["rollout/failed/error"], m["rollout/episodes"], m["rollout/replayed"],
			m["rollout/left_out"])
		if got != want {
			t.Errorf("step %d: failed, episodes, replayed and left out are %s, want %s", step, got, want)
		}
	}
	if strings.Contains(stderr, "\x1b[2J") || !strings.Contains(stderr, `away \x1b[2J`) ||
		!strings.Contains(stderr, "the step is skipped") {
		t.Errorf("it said %s", stderr)
	}
	for e, err := range episode.Read(filepath.Join(dir, "runs/tiny/rollouts/step_4.jsonl")) {
		if err != nil || e.Group != 1 {
			t.Errorf("episode %+v, %v: want those of the healthy group", e, err)
		}
	}
}
