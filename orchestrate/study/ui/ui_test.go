package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/episodes"
	"gyre/orchestrate/study/episodes/episodetest"
)

// place is a folder with two runs and a study, and a server of it.
func place(t *testing.T) (string, *Server) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"a", "b"} {
		episodetest.Run{Dir: filepath.Join(root, name), Steps: 6, Saved: 2, Groups: 3, Members: 4,
			Config: "seed = " + map[string]string{"a": "1", "b": "2"}[name] + "\n[model]\npath = 'm'\n" +
				"[[envs]]\ntag = 'sokoban'\n"}.Write(t)
	}
	study := filepath.Join(root, "study")
	if err := os.MkdirAll(study, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"state.json": "{}", "summary.json": `[{"condition": "<b>base", "seed": 1,
		"peak_success": 0.5}, {"condition": "other", "seed": 1, "peak_success": null}]`} {
		if err := os.WriteFile(filepath.Join(study, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	s.Paired = func(list []*rundir.Run) (*table.Table, string, error) {
		return nil, fmt.Sprintf("no pairs of %s, %s", list[0].Name, list[1].Name), nil
	}
	return root, s
}

// get asks for JSON and gives it by keys and indexes: get(t, s, "step", values, "groups", 0, "mean").
func get(t *testing.T, s *Server, path string, values url.Values, keys ...any) any {
	t.Helper()
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/api/"+path+"?"+values.Encode(), nil))
	var found any
	if err := json.Unmarshal(w.Body.Bytes(), &found); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s %v: %d, %v, %.300s", path, values, w.Code, err, w.Body)
	}
	for _, key := range keys {
		switch k := key.(type) {
		case string:
			found = found.(map[string]any)[k]
		case int:
			found = found.([]any)[k]
		}
	}
	return found
}

func TestAnswers(t *testing.T) {
	root, s := place(t)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	of := func(pairs ...string) url.Values {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return v
	}
	last := "step:6:1:" + a
	for _, c := range []struct {
		path   string
		values url.Values
		keys   []any
		want   any
	}{
		{"runs", nil, []any{"runs", 1, "run"}, b},
		{"runs", nil, []any{"runs", 0, "step"}, 6.0},
		{"runs", nil, []any{"studies", 0}, filepath.Join(root, "study")},
		{"run", of("run", a), []any{"files", "step", 1}, 6.0},
		{"run", of("run", a), []any{"summary", 0, "state"}, "done"},
		{"series", of("run", a, "run", b, "key", "actor/entropy", "key", "none"), []any{1, "run"}, b},
		{"series", of("run", a, "key", "val-env/*/success"), []any{0, "values", 3}, 0.5},
		{"series", of("run", a, "key", "val-env/*/success"), []any{0, "low", 3}, 0.456852}, // Wilson's of 512
		{"compare", of("run", a, "run", b), []any{"note"}, "no pairs of a, b"},
		{"compare", of("run", a, "run", b), []any{"configuration", 0, "key"}, "run.seed"},
		{"compare", of("run", a, "run", b), []any{"configuration", 0, "b"}, "2"},
		{"study", of("study", filepath.Join(root, "study")), []any{0, "condition"}, "<b>base"},
		{"step", of("run", a), []any{"step"}, 6.0},
		{"step", of("run", a), []any{"episodes"}, 12.0},
		{"step", of("run", a, "kind", "step", "step", "5", "low", "10.2"), []any{"groups", 0, "group"}, 2.0},
		{"step", of("run", a), []any{"groups", 0, "kept"}, true},
		{"step", of("run", a, "text", "ONERROR"), []any{"groups", 0, "group"}, 0.0},
		{"search", of("run", a, "text", "ONERROR"), []any{"episodes", 4, "step"}, 5.0},
		{"search", of("run", a, "from", "5", "low", "10.2"), []any{"episodes", 0, "step"}, 5.0},
		{"search", of("run", a), []any{"next"}, -1.0},
		{"episodes", of("e", last, "e", "step:5:1:"+b), []any{1, "run"}, b},
		{"episodes", of("e", last), []any{0, "turns", 0, "parts", 1, "text"}, "Up || Left"},
		{"same", of("e", last, "run", b, "kind", "step", "step", "5"), []any{3, "episode"}, 3.0},
	} {
		if got := get(t, s, c.path, c.values, c.keys...); got != c.want {
			t.Errorf("%s %v %v = %v, want %v", c.path, c.values, c.keys, got, c.want)
		}
	}
	if said := get(t, s, "why", of("run", a), "said"); !strings.HasPrefix(said.(string), "None of ") {
		t.Errorf("of a sound run: %s", said)
	}
}

// Only what was found is read, only GET is answered, and only under the names of this machine.
func TestWhatIsRefused(t *testing.T) {
	root, s := place(t)
	secret := filepath.Join(filepath.Dir(root), "secret")
	ask := func(method, host, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "http://"+host+path, nil)
		s.Handler().ServeHTTP(w, r)
		return w
	}
	for _, c := range []struct {
		method, host, path string
		status             int
	}{
		{"GET", "localhost:8090", "/", 200}, {"GET", "127.0.0.1:1", "/app.js", 200}, {"GET", "[::1]:1", "/api/runs", 200},
		{"GET", "evil.example", "/", 403}, {"GET", "evil.example:8090", "/api/runs", 403}, {"GET", "10.0.0.1", "/", 403},
		{"POST", "localhost", "/api/runs", 405}, {"DELETE", "localhost", "/api/run?run=" + root + "/a", 405},
		{"GET", "localhost", "/api/run?run=" + url.QueryEscape(secret), 404},
		{"GET", "localhost", "/api/run?run=" + url.QueryEscape(root+"/a/../a/rollouts"), 404},
		{"GET", "localhost", "/api/study?study=" + url.QueryEscape(root), 404},
		{"GET", "localhost", "/api/step?step=1&run=" + url.QueryEscape(root+"/a"), 404},
		{"GET", "localhost", "/api/episodes?e=step:6:99:" + url.QueryEscape(root+"/a"), 404},
		{"GET", "localhost", "/api/episodes?e=nonsense", 404},
		{"GET", "localhost", "/ui.go", 404}, {"GET", "localhost", "/../ui.go", 301},
	} {
		w := ask(c.method, c.host, c.path)
		if w.Code != c.status && !(c.status == 301 && w.Code >= 300) {
			t.Errorf("%s %s%s: status %d, want %d", c.method, c.host, c.path, w.Code, c.status)
		}
	}
	csp := ask("GET", "localhost", "/").Header().Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q", csp)
	}
	w := ask("GET", "localhost", "/api/run?run="+url.QueryEscape(secret))
	if !strings.Contains(w.Body.String(), "there is no run") {
		t.Errorf("the answer does not say what is wrong: %s", w.Body)
	}
}

// A curve of many points keeps its extremes and its order.
func TestLongCurvesAreThinned(t *testing.T) {
	var steps []int
	var values []float64
	for i := range 5001 {
		steps, values = append(steps, i), append(values, float64(i%7))
	}
	values[1234], values[4321] = 100, -100
	x, y := thin(steps, values)
	high, low := false, false
	for i := range x {
		if i > 0 && x[i] < x[i-1] || y[i] != values[x[i]] {
			t.Fatalf("point %d: step %d, value %v", i, x[i], y[i])
		}
		high, low = high || y[i] == 100, low || y[i] == -100
	}
	if len(x) > mostPoints || len(x) < mostPoints/2 || !high || !low {
		t.Errorf("%d points, highest kept: %t, lowest: %t", len(x), high, low)
	}
}

// The file holds what its policy allows and nothing that could end an element.
func TestFileOfEpisodes(t *testing.T) {
	root, s := place(t)
	source := s.runs[filepath.Join(root, "a")].source
	file, err := source.File("", -1)
	if err != nil {
		t.Fatal(err)
	}
	found, err := source.Select(context.Background(), file, episodes.Filter{Groups: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := source.View(context.Background(), found[0])
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteFile(&out, "a </title><script>", []*episodes.View{v}); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if strings.Count(page, "<script") != 2 || strings.Contains(page, "<img") || strings.Contains(page, "\nimport ") ||
		strings.Contains(page, "\nexport ") || !strings.Contains(page, "sha256-") {
		t.Errorf("the page has %d scripts", strings.Count(page, "<script"))
	}
}

// large is a folder with 200 runs, and one of 5,000 steps with a million episodes: its files are names of one.
func large(t *testing.T) (string, *Server) {
	t.Helper()
	root := t.TempDir()
	long := filepath.Join(root, "long")
	episodetest.Run{Dir: long, Steps: 5000, Saved: 1, Groups: 25, Members: 8}.Write(t)
	for step := 1; step < 5000; step++ {
		if err := os.Link(filepath.Join(long, "rollouts/step_5000.jsonl"), filepath.Join(long, "rollouts", fmt.Sprintf("step_%d.jsonl", step))); err != nil {
			t.Skip("no hard links here: ", err)
		}
	}
	episodetest.Run{Dir: filepath.Join(root, "short-0"), Steps: 40}.Write(t)
	for i := 1; i < 200; i++ {
		if err := os.CopyFS(filepath.Join(root, fmt.Sprintf("short-%d", i)), os.DirFS(filepath.Join(root, "short-0"))); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	return root, s
}

// The first view of many and of long runs reads no episode and decodes no line. It is to take less than a second; a
// busy machine may take ten times as long.
func TestLargeFoldersAreShownAtOnce(t *testing.T) {
	root, s := large(t)
	long := url.Values{"run": {filepath.Join(root, "long")}, "key": {"val-env/*/success", "actor/entropy"}}
	begin := time.Now()
	if n := len(get(t, s, "runs", nil, "runs").([]any)); n != 201 {
		t.Errorf("%d runs", n)
	}
	listed := time.Since(begin)
	if n := len(get(t, s, "run", long, "files", "step").([]any)); n != 5000 {
		t.Errorf("%d steps", n)
	}
	get(t, s, "series", long)
	shown := time.Since(begin)
	if get(t, s, "step", long, "episodes") != 200.0 {
		t.Error("the last step has not 200 episodes")
	}
	t.Logf("201 runs listed after %v, a run of 5,000 steps shown after %v, a step of it after %v", listed, shown, time.Since(begin))
	if shown > 10*time.Second {
		t.Errorf("the first view took %v", shown)
	}
}
