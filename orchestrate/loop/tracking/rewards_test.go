package tracking

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gyre/envs/reward"
)

func replies(step int, texts ...string) []Tracked {
	var rows []Tracked
	for i, text := range texts {
		r := Tracked{Step: step, GlobalStep: step + 1, Index: i, Prompt: fmt.Sprint("p", i/2), Group: i / 2,
			Rollout:    i % 2,
			Components: map[string]reward.Float{"correctness": reward.Float(i % 2)}, Total: 0.5}
		r.Complete(text, false)
		rows = append(rows, r)
	}
	return rows
}

func contents(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The keys, their order, the indentation and the numbers are those that Python's json.dump(…, indent=2) writes.
func TestHistorySchema(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reward_tracking_x")
	tracker, err := OpenTracker(dir, "tiny", "math500", 0)
	if err != nil {
		t.Fatal(err)
	}
	statistics, err := tracker.Add(replies(0, strings.Repeat("a", 400), `first \boxed{1}`))
	if err != nil {
		t.Fatal(err)
	}
	times := regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
	got := times.ReplaceAllString(contents(t, dir, HistoryFile), "TIME")
	want := `{
  "metadata": {
    "created_at": "TIME",
    "model": "tiny",
    "dataset": "math500",
    "last_saved": "TIME"
  },
  "steps": [
    {
      "step": 0,
      "timestamp": "TIME",
      "num_samples": 2,
      "statistics": {
        "avg_correctness": 0.5,
        "avg_format": 0.325,
        "avg_length_reward": 0.259375,
        "avg_actual_length": 207.5,
        "correct_count": 1,
        "format_valid_count": 1,
        "total_samples": 2
      },
      "samples": [
        {
          "idx": 0,
          "correctness": 0.0,
          "format": 0.0,
          "length_reward": 0.5,
          "actual_length": 400
        },
        {
          "idx": 1,
          "correctness": 1.0,
          "format": 0.65,
          "length_reward": 0.018750000000000044,
          "actual_length": 15
        }
      ]
    }
  ]
}
`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if line := statistics.String(); line != "correctness 0.500 (1/2), format 0.325 (valid: 1), length reward 0.259, "+
		"actual length 207.5 chars" {
		t.Errorf("statistics: %s", line)
	}
	var row map[string]any
	last := strings.Split(strings.TrimSpace(contents(t, dir, RowsFile)), "\n")[1]
	if err := json.Unmarshal([]byte(last), &row); err != nil || row["extracted"] != "1" || row["rollout"] != 1.0 ||
		row["prompt"] != "p0" || row["total"] != 0.5 {
		t.Errorf("%s, %v", last, err)
	}
	if err := tracker.Close(); err != nil {
		t.Fatal(err)
	}
}

// A run that is killed at any byte and resumed from a checkpoint has the files of one that was never disturbed.
func TestTrackerResumes(t *testing.T) {
	clean := regexp.MustCompile(`"(created_at|last_saved|timestamp)": ?"[^"]*"`)
	record := func(dir string, done, steps int) {
		t.Helper()
		tracker, err := OpenTracker(dir, "m", "d", done)
		if err != nil {
			t.Fatal(err)
		}
		for s := done; s < steps; s++ {
			if _, err := tracker.Add(replies(s, fmt.Sprint("answer ", s), "é")); err != nil {
				t.Fatal(err)
			}
		}
		if err := tracker.Close(); err != nil {
			t.Fatal(err)
		}
	}
	undisturbed := t.TempDir()
	record(undisturbed, 0, 5)
	whole := contents(t, undisturbed, RowsFile)
	for _, cut := range []int{0, 1, 200, len(whole) / 2, len(whole) - 1, len(whole)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, RowsFile), []byte(whole[:cut]), 0o644); err != nil {
			t.Fatal(err)
		}
		done := strings.Count(whole[:cut], "\n") / 2 // whole steps on the disk
		done = min(done, 3)                          // of which the checkpoint has at most three
		record(dir, done, 5)
		for _, name := range []string{RowsFile, HistoryFile} {
			if got, want := clean.ReplaceAllString(contents(t, dir, name), ""),
				clean.ReplaceAllString(contents(t, undisturbed, name), ""); got != want {
				t.Errorf("cut at byte %d, %s differs:\n%.300s\nwant\n%.300s", cut, name, got, want)
			}
		}
	}
}

// A link leads to the last run's folder, also before that exists, and takes nothing away.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "here", "rewards")
	for _, run := range []string{"one", "two"} {
		folder := filepath.Join(dir, "runs", run)
		if taken, err := Link(folder, path); err != nil || taken {
			t.Fatal(taken, err)
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "x"), []byte(run), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(path, "x")); err != nil || string(text) != run {
			t.Errorf("%s: %s, %v", run, text, err)
		}
	}
	own := filepath.Join(dir, "runs", "one")
	if taken, err := Link(filepath.Join(dir, "runs", "two"), own); err != nil || !taken {
		t.Errorf("a folder: taken %v, %v", taken, err)
	}
	if text, err := os.ReadFile(filepath.Join(own, "x")); err != nil || string(text) != "one" {
		t.Errorf("the folder that was there: %s, %v", text, err)
	}
}
