package tracking

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func replies(texts ...string) (rows []Tracked) {
	for i, text := range texts {
		rows = append(rows, Track(i, text, map[string]float64{"correctness": float64(i % 2)}, false))
	}
	return rows
}

func contents(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, HistoryFile))
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
	statistics, err := tracker.Add(0, replies(strings.Repeat("a", 400), `first \boxed{1}`))
	if err != nil {
		t.Fatal(err)
	}
	times := regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
	got := times.ReplaceAllString(contents(t, dir), "TIME")
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
	if err := tracker.Flush(); err != nil {
		t.Fatal(err)
	}
}

// A run that is killed and resumed from a checkpoint has the file of one that was never disturbed; one that begins
// anew has none of what was there.
func TestTrackerResumes(t *testing.T) {
	clean := regexp.MustCompile(`"(created_at|last_saved|timestamp)": ?"[^"]*"`)
	record := func(dir string, done, steps int) string {
		t.Helper()
		tracker, err := OpenTracker(dir, "m", "d", done)
		if err != nil {
			t.Fatal(err)
		}
		for s := done; s < steps; s++ {
			if _, err := tracker.Add(s, replies(fmt.Sprint("answer ", s), "é")); err != nil {
				t.Fatal(err)
			}
		}
		if err := tracker.Flush(); err != nil {
			t.Fatal(err)
		}
		return clean.ReplaceAllString(contents(t, dir), "")
	}
	want := record(t.TempDir(), 0, 5)
	for _, done := range []int{0, 2, 4} {
		dir := t.TempDir()
		record(dir, 0, 4)
		begun := regexp.MustCompile(`"created_at": "[^"]*"`).FindString(contents(t, dir))
		if got := record(dir, done, 5); got != want {
			t.Errorf("resumed after %d of 4 steps:\n%.300s\nwant\n%.300s", done, got, want)
		}
		if done > 0 && !strings.Contains(contents(t, dir), begun) {
			t.Errorf("a resumed run was created later than %s", begun)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, HistoryFile), []byte("[1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTracker(dir, "m", "d", 1); err == nil || !strings.Contains(err.Error(), HistoryFile) {
		t.Errorf("a history that cannot be read: %v", err)
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
