package metrics

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

var everything = map[string]any{
	"actor/loss": 0.5, "bad": math.NaN(), "n": 3, "ok": true, "profile": "exact",
	"table": Table{Columns: []string{"bucket", "rv"}, Rows: [][]any{{"bucket_1", 0.5}, {"bucket_2", math.Inf(1)}}},
}

func openRun(t *testing.T, dir string, last int) Sink {
	t.Helper()
	s, err := OpenSinks(Run{Dir: dir, ID: "abcd1234", Name: "demo", Config: []byte("[run]\nsteps = 3\n"), Loggers: Loggers, Last: last})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func logAll(t *testing.T, s Sink, steps ...int) {
	t.Helper()
	for _, step := range steps {
		if err := s.Log(step, everything); err != nil {
			t.Fatal(err)
		}
	}
}

// eventSteps lists the steps in a TensorBoard file.
func eventSteps(t *testing.T, dir string) (steps []int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "tensorboard", "events.out.tfevents.gyre"))
	if err != nil {
		t.Fatal(err)
	}
	for reader := bytes.NewReader(data); reader.Len() > 0; {
		record, err := readRecord(reader)
		if err != nil {
			t.Fatal(err)
		}
		if step, ok := stepOf(record); ok {
			steps = append(steps, step)
		}
	}
	return steps
}

// wandbSteps lists the steps in the offline run, and whether it ends as a finished run does.
func wandbSteps(t *testing.T, dir string) (steps []int, ended bool) {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(dir, "wandb", "offline-run-*-abcd1234", "run-abcd1234.wandb"))
	if len(found) != 1 {
		t.Fatalf("offline runs: %q", found)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	at, number := int64(len(wandbMagic)), uint64(0)
	for {
		record, end, ok := nextRecord(data, at)
		if !ok {
			break
		}
		number++
		if _, _, n := protowire.ConsumeTag(record); n > 0 {
			if got, _ := protowire.ConsumeVarint(record[n:]); got != number {
				t.Fatalf("record %d has the number %d", number, got)
			}
		}
		if step, ok := wandbStep(record); ok {
			steps = append(steps, step)
		}
		_, ended = field(record, wandbExit)
		at = end
	}
	if at != int64(len(data)) {
		t.Fatalf("the log can be read to byte %d of %d", at, len(data))
	}
	return steps, ended
}

func equal(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func checkSteps(t *testing.T, dir string, want ...int) {
	t.Helper()
	offline, ended := wandbSteps(t, dir)
	if got := steps(t, filepath.Join(dir, File)); !equal(got, want) || !equal(eventSteps(t, dir), want) || !equal(offline, want) || !ended {
		t.Errorf("jsonl %v, TensorBoard %v, W&B %v (ended: %v); want %v", got, eventSteps(t, dir), offline, ended, want)
	}
}

// Kill, resume and a lost sink leave every sink with the steps of metrics.jsonl.
func TestSinksAgreeAfterResume(t *testing.T) {
	dir := t.TempDir()
	s := openRun(t, dir, -1)
	logAll(t, s, 0, 1, 2, 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, dir, 0, 1, 2, 3)
	// Killed in the middle of step 4's writing; the checkpoint is of step 2.
	for _, pattern := range []string{"tensorboard/*", "wandb/*/*.wandb", File} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		f, err := os.OpenFile(found[0], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("torn")
		f.Close()
	}
	s = openRun(t, dir, 2)
	if w := s.(sinks)[2].(*wandB); w.summary["actor/loss"] != "0.5" || w.summary["_step"] != "2" {
		t.Errorf("the reopened run's summary is %v", w.summary)
	}
	logAll(t, s, 3, 4)
	s.Close()
	checkSteps(t, dir, 0, 1, 2, 3, 4)
	if err := os.RemoveAll(filepath.Join(dir, "tensorboard")); err != nil {
		t.Fatal(err)
	}
	s = openRun(t, dir, 4)
	logAll(t, s, 5)
	s.Close()
	checkSteps(t, dir, 0, 1, 2, 3, 4, 5)
}

// A long record is cut into pieces over the blocks of the log.
func TestLongRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var want, got [][]byte
	l, err := openRecordLog(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, logBlock - 40, 12, 3, 100_000, logBlock - logFrame, 5} {
		want = append(want, bytes.Repeat([]byte{byte(size)}, size))
		if err := l.write(want[len(want)-1]); err != nil {
			t.Fatal(err)
		}
	}
	l.close()
	l, err = openRecordLog(path, func(record []byte) bool { got = append(got, record); return true })
	if err != nil {
		t.Fatal(err)
	}
	l.close()
	if len(got) != len(want) {
		t.Fatalf("%d records of %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("record %d: %d bytes, want %d", i, len(got[i]), len(want[i]))
		}
	}
}

// What the checkpoint has done and metrics.jsonl lacks is named.
func TestHolesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		logged      []int
		first, last int
		sparse      bool
		want        string
	}{
		"whole":             {[]int{0, 1, 2, 3}, 0, 2, false, ""},
		"no validation":     {[]int{1, 2}, 0, 2, false, ""},
		"missing":           {nil, 0, 3, false, "lacks steps 1 to 3"},
		"cut":               {[]int{0, 1}, 0, 3, false, "lacks steps 2 to 3"},
		"hole":              {[]int{0, 1, 3}, 0, 3, false, "lacks step 2,"},
		"from a checkpoint": {[]int{5, 6}, 5, 6, false, ""},
		"now and then":      {[]int{2, 4}, 0, 4, true, ""},
		"new":               {nil, 0, -1, false, ""},
		"at the first":      {nil, 5, 4, false, ""},
	} {
		dir := t.TempDir()
		if c.logged != nil {
			l := open(t, filepath.Join(dir, File))
			logSteps(t, l, c.logged...)
		}
		s, err := OpenSinks(Run{Dir: dir, First: c.first, Last: c.last, Sparse: c.sparse})
		var hole *HoleError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.As(err, &hole) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil {
			s.Close()
		}
	}
}
