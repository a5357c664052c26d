package trainer

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/run/metrics"
)

func handwritten(t *testing.T, lines ...string) []*episode.Episode {
	t.Helper()
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, "\n", " ") // an episode is a line
	}
	path := filepath.Join(t.TempDir(), "episodes.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := episode.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Groups of any number and size are replayed without [[envs]]; log-probs that an episode carries
// are taken, and the others computed.
func TestReplayOfUnevenGroups(t *testing.T) {
	file, run := filepath.Join(t.TempDir(), "episodes.jsonl"), t.TempDir()
	lines := `{"group": 4, "ids": [3, 4, 5, 6], "mask": [0, 0, 1, 1], "rewards": [[3, 1]], "logprobs": [null, null, -1.5, -2.5]}
{"group": 4, "ids": [3, 4, 7], "mask": [0, 0, 1], "rewards": [[2, 0]]}
{"group": 9, "ids": [3, 5, 5, 8], "mask": [0, 1, 0, 1], "rewards": [[3, 0.5]]}
`
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	document := fmt.Sprintf("[run]\nname = 'r'\nsteps = 2\noutput = %q\n[model]\npath = '%s/llama'\ndtype = "+
		"'float32'\n[algorithm]\nadvantage = 'grpo'\n[actor]\nmini_batch = 2\nschedule = 'linear'\nlr = "+
		"1.0e-3\n[analysis]\nenabled = false\n", run, fixtures)
	path := filepath.Join(run, "c.toml")
	if err := os.WriteFile(path, []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadFor(func(*config.Config) bool { return true }, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := New(context.Background(), c, session.Options{Replay: file, Console: metrics.NewConsole(io.Discard)})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	var rates []float64
	for record, err := range metrics.Read(filepath.Join(run, "r", "metrics.jsonl")) {
		if err != nil {
			t.Fatal(err)
		}
		lr, _ := record.Float("actor/lr")
		rates = append(rates, lr)
	}
	// The schedule counts training steps, however many optimizer steps their groups make.
	if len(rates) != 2 || rates[0] != 1e-3 || rates[1] != 0 {
		t.Errorf("learning rates %v, want [0.001 0]", rates)
	}
	given := handwritten(t, `{"group": 0, "ids": [3, 4], "mask": [0, 1], "rewards": [], "logprobs": [null, -1.5]}`,
		`{"group": 0, "ids": [3, 4], "mask": [0, 1], "rewards": []}`)
	s := &Prepared{Selection: Selection{Episodes: given, Batch: session.BatchOf(given)}, from: source.Replayed}
	if err := tr.preparation.oldLogprobs(context.Background(), s, metrics.Line{}); err != nil {
		t.Fatal(err)
	}
	if old := s.Batch.Old; old[0][1] != -1.5 || old[1][1] >= 0 || old[1][1] == -1.5 {
		t.Errorf("old log-probs %v, want the given -1.5 and a computed one", old)
	}
}
