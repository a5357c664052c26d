package metrics

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"gyre/orchestrate/config"
)

var everything = map[string]any{
	"actor/loss": 0.5, "bad": math.NaN(), "n": 3, "ok": true, "profile": "exact",
	"table": Table{Columns: []string{"bucket", "rv"}, Rows: [][]any{{"bucket_1", 0.5}, {"bucket_2", math.Inf(1)}}},
}

func openRun(t *testing.T, dir string, last int) Sink {
	t.Helper()
	loggers := []config.Logger{{Name: "jsonl"}, {Name: "tensorboard"},
		{Command: []string{"sh", "-c", `cat >"$0"`, filepath.Join(dir, "told")}}}
	s, err := OpenSinks(Run{Dir: dir, ID: "abcd1234", Name: "demo", Project: "mine",
		Config: []byte("[run]\nsteps = 3\n"), Loggers: loggers, Last: last,
		Warn: func(format string, args ...any) { t.Errorf(format, args...) }})
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
	for len(data) > 0 {
		length := binary.LittleEndian.Uint64(data)
		event := data[12 : 12+length]
		if masked(data[:8]) != binary.LittleEndian.Uint32(data[8:]) ||
			masked(event) != binary.LittleEndian.Uint32(data[12+length:]) {
			t.Fatal("a record's checksum is wrong")
		}
		data = data[16+length:]
		step, n := protowire.ConsumeVarint(event[10:])                       // the step, behind the time
		if number, _, _ := protowire.ConsumeTag(event[10+n:]); number == 5 { // a summary
			steps = append(steps, int(step))
		}
	}
	return steps
}

// toldSteps lists the steps that a program was sent, in order, after the line about the run.
func toldSteps(t *testing.T, path string) (steps []int) {
	t.Helper()
	first := true
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var about struct {
			ID, Name, Project, Dir string
			Config                 map[string]any
		}
		if first {
			if err := json.Unmarshal(line, &about); err != nil || about.ID != "abcd1234" || about.Name != "demo" ||
				about.Project != "mine" || about.Config["run"] == nil {
				t.Errorf("about the run: %s, %v", line, err)
			}
			first = false
			continue
		}
		record, err := decode(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		steps = append(steps, record.Step)
	}
	return steps
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
	told := toldSteps(t, filepath.Join(dir, "told"))
	if got := steps(t, filepath.Join(dir, File)); !equal(got, want) || !equal(eventSteps(t, dir), want) ||
		!equal(told, want) {
		t.Errorf("jsonl %v, TensorBoard %v, the program %v; want %v", got, eventSteps(t, dir), told, want)
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
	for _, pattern := range []string{"tensorboard/*", File} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		f, err := os.OpenFile(found[0], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString("torn")
		f.Close()
	}
	s = openRun(t, dir, 2)
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

// A program that is missing, ends early, hangs or is slow is named and counted, and never holds up the run.
func TestBadProgramsDoNotStopTheRun(t *testing.T) {
	const records = commandQueue + 500
	for name, c := range map[string]struct {
		words []string
		want  string
	}{
		"missing":    {[]string{"no-such-program"}, "executable file not found"},
		"ends early": {[]string{"sh", "-c", "echo no module named wandb; exit 3"}, "no module named wandb"},
		"fails":      {[]string{"sh", "-c", "cat >/dev/null; echo upload refused; exit 1"}, "upload refused"},
		"hangs":      {[]string{"sleep", "20"}, "records did not reach"},
		"stays":      {[]string{"sh", "-c", "cat >/dev/null; sleep 20"}, ") does not end: it is left to itself"},
	} {
		dir := t.TempDir()
		logger := open(t, filepath.Join(dir, File))
		logSteps(t, logger, 1)
		var mu sync.Mutex // guards said
		said := ""
		warn := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			said += fmt.Sprintf(format, args...) + "\n"
		}
		s, err := openCommand(Run{Dir: dir, ID: "a", Name: "b", Warn: warn}, "x", c.words, 2*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		begin := time.Now()
		for step := range records {
			if err := s.Log(step, everything); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if err := s.Close(); err != nil || time.Since(begin) > 15*time.Second {
			t.Errorf("%s: %v after %v", name, err, time.Since(begin))
		}
		mu.Lock()
		defer mu.Unlock()
		if !strings.Contains(said, c.want) || name != "stays" && name != "hangs" && !strings.Contains(said, "The run goes on") {
			t.Errorf("%s: said %q, want %q", name, said, c.want)
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
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err == nil {
			s.Close()
		}
	}
}
