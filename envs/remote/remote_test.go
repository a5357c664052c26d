package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gyre/envs"
	"gyre/internal/child/childtest"
)

// python gives the interpreter, the server script and where its modules are, or skips.
func python(t testing.TB) []string {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: real servers are not tried")
	}
	script, err := filepath.Abs("../../scripts/remote_env.py")
	if err != nil {
		t.Fatal(err)
	}
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH",
		data+string(os.PathListSeparator)+filepath.Dir(script)+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"))
	return []string{interpreter, script}
}

// serve starts an HTTP server and gives its address and what ends it.
func serve(t testing.TB, arguments ...string) (url string, kill func()) {
	t.Helper()
	line := append(python(t), arguments...)
	command := exec.Command(line[0], line[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		command.Wait()
	})
	t.Cleanup(end)
	kill = func() {
		if end(); !childtest.EndedBy(command, syscall.SIGKILL) {
			t.Errorf("the server was to be killed: %v", command.ProcessState)
		}
	}
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(first, "listening on ") {
		t.Fatalf("the server says %q, %v", first, err)
	}
	return strings.TrimSpace(strings.TrimPrefix(first, "listening on ")), kill
}

func open(t testing.TB, tag string, options map[string]any) envs.Env {
	t.Helper()
	spec, err := envs.Lookup(tag)
	if err != nil {
		t.Fatal(err)
	}
	make, err := spec.Factory(options)
	if err != nil {
		t.Fatal(err)
	}
	return opened(t, make)
}

// opened makes one of the environments that share something.
func opened(t testing.TB, make envs.Factory) envs.Env {
	t.Helper()
	e, err := make()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// factory makes environments of one set of options.
func factory(t testing.TB, options map[string]any) envs.Factory {
	t.Helper()
	spec, err := envs.Lookup("Remote")
	if err != nil {
		t.Fatal(err)
	}
	make, err := spec.Factory(options)
	if err != nil {
		t.Fatal(err)
	}
	return make
}

// ways are the same environment behind HTTP and in a process.
func ways(t testing.TB, factory, config string) map[string]map[string]any {
	t.Helper()
	url, _ := serve(t, "--factory", factory, "--port", "0")
	command := append(python(t), "--factory", factory, "--stdio")
	return map[string]map[string]any{"http": {"url": url, "config": config},
		"process": {"command": command, "config": config}}
}

func TestRealServers(t *testing.T) {
	for way, options := range ways(t, "walk:make", `{"fault": "print"}`) {
		t.Run(way, func(t *testing.T) {
			ctx := t.Context()
			a, b := open(t, "Remote", options), open(t, "Remote", options)
			for seed := range int64(4) {
				var told [2][]string
				for i, e := range []envs.Env{a, b} {
					if i == 1 && seed > 0 { // b meets other seeds in between
						if _, err := e.Reset(ctx, seed+100, 0); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := e.Reset(ctx, seed, 0); err != nil {
						t.Fatal(err)
					}
					told[i] = append(told[i], e.Observe().Text)
					for done := false; !done; {
						r, err := e.Step(ctx, "Right")
						if err != nil || !r.Valid || !r.Effective || len(r.Components) != 2 ||
							r.Components[1] != (envs.Component{Name: "cost", Value: -0.1}) {
							t.Fatalf("step: %+v, %v", r, err)
						}
						told[i] = append(told[i], fmt.Sprint(e.Observe().Text, r.Reward, r.Success, r.Info))
						done = r.Done
					}
				}
				if !reflect.DeepEqual(told[0], told[1]) || len(told[0]) < 3 ||
					!strings.Contains(told[0][len(told[0])-1], "1 true") {
					t.Errorf("seed %d: %q and %q", seed, told[0], told[1])
				}
			}
			if _, err := a.Step(ctx, "Right"); err != envs.ErrNotRunning {
				t.Errorf("a step after the end: %v", err)
			}
			start, err := a.Reset(ctx, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			before := a.Observe().Text
			if r, err := a.Step(ctx, "jump"); err != nil || r.Valid || r.Reward != 0 || a.Observe().Text != before {
				t.Errorf("an unknown action: %+v, %v", r, err)
			}
			if r, err := a.Step(ctx, "Left"); err != nil || !r.Valid || r.Effective || r.Info["cell"] != 0 {
				t.Errorf("against the wall: %+v, %v", r, err)
			}
			if !reflect.DeepEqual(start.Actions, []string{"Left", "Right"}) ||
				start.Instruction != "Walk to the last cell." ||
				start.StopStrings[0] != "</act>" || start.Tools[0].Name != "map" {
				t.Errorf("the episode starts with %+v", start)
			}
			for range 2 {
				if err := a.Close(); err != nil {
					t.Error("closing:", err)
				}
			}
		})
	}
}

// Messages, and a part that lies on characters of the action, whatever their bytes.
func TestMessagesAndPlacedParts(t *testing.T) {
	for way, options := range ways(t, "walk:make", `{"text": true}`) {
		e := open(t, "RemoteText", options)
		start, err := e.Reset(t.Context(), 1, 0)
		if err != nil {
			t.Fatal(way, err)
		}
		r, err := e.Step(t.Context(), "é☃!x")
		want := envs.Component{Name: "shout", Value: 1, Placement: envs.PlaceSpread, From: 2, To: 6}
		if err != nil || start.Actions != nil || len(r.Components) != 1 || r.Components[0] != want {
			t.Errorf("%s: %+v, %v, want the part %+v", way, r, err, want)
		}
		if got := e.Observe().Messages; len(got) != 1 ||
			got[0] != (envs.Message{Role: "tool", Name: "map", CallID: "c1", Content: "é☃!x"}) {
			t.Errorf("%s: messages %+v", way, got)
		}
	}
}

func TestVerifiersStyle(t *testing.T) {
	url, _ := serve(t, "--factory", "walk:puzzle", "--port", "0")
	e := open(t, "RemoteText", map[string]any{"url": url})
	if _, err := e.Reset(t.Context(), 8, 0); err != nil {
		t.Fatal(err)
	}
	if got := e.Observe().Messages; len(got) != 1 || got[0].Content != "What is 3 + 3?" {
		t.Errorf("the prompt is %+v", got)
	}
	if r, err := e.Step(t.Context(), "five"); err != nil || r.Done || e.Observe().Messages[0].Content != "Try again." {
		t.Errorf("a wrong answer: %+v, %v", r, err)
	}
	r, err := e.Step(t.Context(), "6")
	if err != nil || !r.Done || !r.Success || r.Reward != 1.25 ||
		r.Components[0] != (envs.Component{Name: "correct", Value: 1}) {
		t.Errorf("the right answer: %+v, %v", r, err)
	}
	// A rollout that fails, or is left for another, harms nobody.
	for _, seed := range []int64{1, 8} {
		if _, err := e.Reset(t.Context(), seed, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Step(t.Context(), "crash"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Step(t.Context(), "crash"); err == nil || !strings.Contains(err.Error(), "lost the thread") {
		t.Errorf("a rollout that fails: %v", err)
	}
}

// Environments of the verifiers library itself, where it is installed: several turns, one, and tools.
func TestVerifiersLibrary(t *testing.T) {
	line := python(t)
	if exec.Command(line[0], "-c", "from verifiers import MultiTurnEnv").Run() != nil {
		t.Skip("verifiers (0.1.9 to 0.3) is not installed")
	}
	for kind, c := range map[string]struct{ replies, shown []string }{
		"turns":  {[]string{"1", "7", "6"}, []string{"Guess.", "3 + 3", "higher", "lower"}},
		"single": {[]string{"6"}, []string{"3 + 3"}},
		"tools": {[]string{`<tool_call>{"name": "add", "arguments": {"a": 3, "b": 3}}</tool_call>`, "6"},
			[]string{"3 + 3", "6"}},
	} {
		e := open(t, "RemoteText", map[string]any{"command": append(line, "--factory", "walk:library", "--stdio"),
			"config":          `{"kind": "` + kind + `"}`,
			"attempt_timeout": 120.0, "patience": 120.0})
		start, err := e.Reset(t.Context(), 3, 0)
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		keep := func() {
			for _, m := range e.Observe().Messages {
				shown = append(shown, m.Content)
			}
		}
		keep()
		var r envs.Result
		for _, reply := range c.replies {
			var err error
			if r, err = e.Step(t.Context(), reply); err != nil {
				t.Fatal(err)
			}
			keep()
		}
		if !r.Done || !r.Success || r.Reward != 1 || r.Components[0] != (envs.Component{Name: "correct", Value: 1}) ||
			len(shown) != len(c.shown) {
			t.Errorf("%s: %+v, shown %q", kind, r, shown)
		}
		for i := range min(len(shown), len(c.shown)) {
			if !strings.Contains(shown[i], c.shown[i]) {
				t.Errorf("%s: shown %q, want %q", kind, shown, c.shown)
			}
		}
		if tools := start.Tools; (len(tools) == 1) != (kind == "tools") {
			t.Errorf("%s: tools %+v", kind, tools)
		}
	}
}

// Gymnasium's own FrozenLake, where it is installed.
func TestGymnasium(t *testing.T) {
	line := python(t)
	if exec.Command(line[0], "-c", "import gymnasium").Run() != nil {
		t.Skip("gymnasium is not installed")
	}
	e := open(t, "Remote", map[string]any{"config": `{"is_slippery": false}`,
		"command": append(line, "--gym", "FrozenLake-v1", "--actions", "Left,Down,Right,Up", "--stdio")})
	if _, err := e.Reset(t.Context(), 3, 0); err != nil {
		t.Fatal(err)
	}
	var last envs.Result
	for _, action := range strings.Fields("Down Down Right Right Down right") {
		var err error
		if last, err = e.Step(t.Context(), action); err != nil {
			t.Fatal(err)
		}
	}
	if !last.Done || !last.Success || last.Reward != 1 || last.Info["prob"] != 1 ||
		!strings.Contains(e.Observe().Text, "HFF") {
		t.Errorf("at the goal: %+v\n%s", last, e.Observe().Text)
	}
}

// A killed server fails what it held, is left alone for a moment, and serves again when it is back.
func TestServerDiesAndComesBack(t *testing.T) {
	url, kill := serve(t, "--factory", "walk:make", "--port", "0")
	make := factory(t, map[string]any{"url": url, "patience": 1.0})
	e := opened(t, make)
	if _, err := e.Reset(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	kill()
	if _, err := e.Step(t.Context(), "Right"); err == nil ||
		!strings.Contains(err.Error(), "asked until the time was up") ||
		!strings.Contains(err.Error(), "nobody listens there") {
		t.Errorf("a step on a dead server: %v", err)
	}
	begun := time.Now()
	other := opened(t, make)
	if _, err := other.Reset(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "left alone") ||
		time.Since(begun) > 5*time.Second {
		t.Errorf("after %v: %v, want to be told at once that the server is away", time.Since(begun), err)
	}
	port := url[strings.LastIndex(url, ":")+1:]
	serve(t, "--factory", "walk:make", "--port", port)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := e.Reset(t.Context(), 1, 0); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the server is back, but:", err)
		}
	}
	if r, err := e.Step(t.Context(), "Right"); err != nil || !r.Valid {
		t.Errorf("%+v, %v", r, err)
	}
}

// A server that stayed away is left alone for as long as it was asked in vain, but not for a call that ran out of time
// while others were answered, nor for the first one while nobody else asked: one environment may hang.
func TestAServerThatIsAwayIsLeftAlone(t *testing.T) {
	s := newServer("http://nobody.invalid", "", time.Second, 1024)
	s.away(time.Now().Add(-time.Minute), errors.New("no answer"))
	if err := s.resting(); err != nil {
		t.Errorf("after one call: %v", err)
	}
	for range 5 {
		s.away(time.Now().Add(-time.Minute), errors.New("no answer"))
	}
	if left := time.Until(s.until); left < 50*time.Second || left > 61*time.Second || !errors.Is(s.resting(), errResting) {
		t.Errorf("left alone for %v after a minute, want a minute", left)
	}
	begun := time.Now()
	s.here()
	s.away(begun, errors.New("too late for one"))
	if err := s.resting(); err != nil {
		t.Error(err)
	}
	s = newServer("http://nobody.invalid", "", time.Second, 1024)
	s.away(time.Now().Add(-time.Minute), fmt.Errorf("asking: %w", syscall.ECONNREFUSED))
	if !errors.Is(s.resting(), errResting) {
		t.Error("nobody listens, and the server is not left alone")
	}
}

// A process that hangs or dies is killed and started again; what it held is lost, the next episode is not.
func TestProcessHangsAndDies(t *testing.T) {
	for _, fault := range []string{"hang", "die"} {
		once := filepath.Join(t.TempDir(), "happened")
		e := open(t, "Remote", map[string]any{"command": append(python(t), "--factory", "walk:make", "--stdio"),
			"config": fmt.Sprintf(`{"fault": %q, "once": %q}`, fault, once)})
		if _, err := e.Reset(t.Context(), 1, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		begun := time.Now()
		_, err := e.Step(ctx, "Right")
		cancel()
		if err == nil || time.Since(begun) > 5*time.Second {
			t.Errorf("%s: %v after %v", fault, err, time.Since(begun))
		}
		if _, err := e.Step(t.Context(), "Right"); err != envs.ErrNotRunning {
			t.Errorf("%s: the lost episode goes on: %v", fault, err)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if _, err = e.Reset(t.Context(), 1, 0); err == nil || time.Now().After(deadline) {
				break
			}
		}
		if err != nil {
			t.Fatalf("%s: not started again: %v", fault, err)
		}
		if r, err := e.Step(t.Context(), "Right"); err != nil || !r.Valid {
			t.Errorf("%s: afterwards %+v, %v", fault, r, err)
		}
	}
}

func TestExceptionsOfTheEnvironmentFailItsEpisode(t *testing.T) {
	for way, options := range ways(t, "walk:make", `{"fault": "raise"}`) {
		e := open(t, "Remote", options)
		if _, err := e.Reset(t.Context(), 1, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Step(t.Context(), "Right"); err == nil || !strings.Contains(err.Error(), "lost the way") {
			t.Errorf("%s: %v", way, err)
		}
		if _, err := e.Reset(t.Context(), 2, 0); err != nil {
			t.Errorf("%s: the next episode: %v", way, err)
		}
	}
}

// What a server may say that is not so: every such step is an error, none a panic or a long wait.
func TestLies(t *testing.T) {
	good := `{"items": [{"id": "e", "observation": {"text": "s"}, "reward": 1}]}`
	for body, want := range map[string]string{
		`not json`:                "cannot be read",
		`{"items": []}`:           "0 items",
		`{"error": "no licence"}`: "no licence",
		`{"items": [{"id": "other", "observation": {}, "reward": 1}]}`:                    `environment "other"`,
		`{"items": [{"id": "e", "reward": 1}]}`:                                           `no "observation"`,
		`{"items": [{"id": "e", "observation": {}}]}`:                                     `no "reward"`,
		`{"items": [{"id": "e", "observation": {}, "reward": "much"}]}`:                   "cannot be read",
		`{"items": [{"id": "e", "observation": {}, "reward": 1e999}]}`:                    "cannot be read",
		`{"items": [{"id": "e", "observation": {"text": 3}, "reward": 1}]}`:               "cannot be read",
		`{"items": [{"id": "e", "observation": {}, "reward": 1, "info": {"a": "text"}}]}`: "cannot be read",
		`{"items": [{"id": "e", "gone": true}]}`:                                          "no environment of this id",
		`{"items": [{"id": "e", "error": "boom"}]}`:                                       "boom",
		`{"items": [` + strings.Repeat("1,", 5000) + `1]}`:                                "max_bytes",
	} {
		answer := ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/create" {
				fmt.Fprint(w, `{"ids": ["e"]}`)
				return
			}
			if fmt.Fprint(w, answer); r.URL.Path == "/step" {
				return
			}
		}))
		e := open(t, "Remote", map[string]any{"url": server.URL, "max_bytes": 4096})
		answer = good
		if _, err := e.Reset(t.Context(), 1, 0); err != nil {
			t.Fatal(err)
		}
		answer = body
		if _, err := e.Step(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want an error with %q", body, err, want)
		}
		if _, err := e.Reset(t.Context(), 1, 0); err == nil && !strings.Contains(body, `"observation"`) {
			t.Errorf("%.60s: accepted as the answer to a reset", body)
		}
		e.Close()
		server.Close()
	}
}

// An answer that gets lost is asked for again under the same number; refusals are not.
func TestAskedAgain(t *testing.T) {
	var asked atomic.Int32
	var status atomic.Int32
	status.Store(http.StatusServiceUnavailable)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/create":
			fmt.Fprint(w, `{"ids": ["e"]}`)
		case "/step":
			if n := asked.Add(1); n <= 2 {
				if n == 1 {
					panic(http.ErrAbortHandler) // executed, but the answer is lost
				}
				w.WriteHeader(int(status.Load()))
				return
			}
			fallthrough
		default:
			fmt.Fprint(w, `{"items": [{"id": "e", "observation": {"text": "s"}, "reward": 1}]}`)
		}
	}))
	defer server.Close()
	e := open(t, "Remote", map[string]any{"url": server.URL})
	if _, err := e.Reset(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	if r, err := e.Step(t.Context(), "x"); err != nil || r.Reward != 1 || asked.Load() != 3 {
		t.Errorf("%+v, %v after %d attempts, want success with the third", r, err, asked.Load())
	}
	asked.Store(1)
	status.Store(http.StatusUnauthorized)
	if _, err := e.Step(t.Context(), "x"); err == nil || asked.Load() != 2 || !strings.Contains(err.Error(), "401") {
		t.Errorf("%v after %d attempts, want a refusal after one", err, asked.Load()-1)
	}
}

// The Python server executes a numbered step once, however often it is asked.
func TestStepsAreExecutedOnce(t *testing.T) {
	url, _ := serve(t, "--factory", "walk:make", "--port", "0")
	e := open(t, "Remote", map[string]any{"url": url}).(*env)
	if _, err := e.Reset(t.Context(), 1, 0); err != nil {
		t.Fatal(err)
	}
	right := "Right"
	for range 3 {
		got, err := e.line.call(t.Context(), call{method: "step", item: item{ID: e.id, Seq: 1, Action: &right}})
		if err != nil || got.state.Info["cell"] != 1 {
			t.Errorf("step 1: %+v, %v", got.state, err)
		}
	}
	if _, err := e.line.call(t.Context(), call{method: "step",
		item: item{ID: e.id, Seq: 7, Action: &right}}); err == nil {
		t.Error("a step out of order was executed")
	}
}

func TestOptions(t *testing.T) {
	spec, err := envs.Lookup("Remote")
	if err != nil {
		t.Fatal(err)
	}
	for want, options := range map[string]map[string]any{
		"exactly one":             {},
		"url and command":         {"url": "http://x", "command": []any{"y"}},
		"option url: expected":    {"url": "ftp://x"},
		"option config: expected": {"url": "http://x", "config": "[1]"},
		"option processes":        {"url": "http://x", "processes": 0},
		"option patience":         {"url": "http://x", "patience": 0},
		"option max_bytes":        {"url": "http://x", "max_bytes": 1},
		"option command":          {"command": []any{"/no/such/program"}},
		"NO_SUCH_TOKEN is empty":  {"url": "http://127.0.0.1:9", "token_variable": "GYRE_NO_SUCH_TOKEN"},
	} {
		if _, err := spec.Make(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", options, err, want)
		}
	}
}

// A misspelt success would be none for ever: it is refused. Not to tell is allowed, and so are other metrics.
func TestMisspeltSuccess(t *testing.T) {
	e := open(t, "Remote", map[string]any{"command": append(python(t), "--factory", "walk:make", "--stdio"),
		"config": `{"fault": "spelling"}`})
	begin(t, e, 1)
	if _, err := e.Step(t.Context(), "Right"); err == nil || !strings.Contains(err.Error(), `info "sucess": did you mean "success"?`) {
		t.Errorf("misspelt: %v", err)
	}
	reward, no := 1.0, false
	for name, refused := range map[string]bool{"Success": true, "succes": true, "successful": true, "is_success": true,
		"steps": false, "score": false, "cell": false, "suspense": false, "access": false, "process": false} {
		r := result{Reward: &reward, Info: map[string]float64{name: 1}}
		if _, err := r.outcome(""); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		r.Success = &no
		if _, err := r.outcome(""); err != nil {
			t.Errorf("%s beside success: %v", name, err)
		}
	}
}

// What is no text is refused by name, and not shown to the policy as Python prints it.
func TestNoText(t *testing.T) {
	ask := func(fault, value string) error {
		e := open(t, "Remote", map[string]any{"command": append(python(t), "--factory", "walk:make", "--stdio"),
			"config": fmt.Sprintf(`{"fault": %q, "once": %q}`, fault, value)})
		if _, err := e.Reset(t.Context(), 1, 0); err != nil {
			return err
		}
		_, err := e.Step(t.Context(), "Right")
		return err
	}
	for value, want := range map[string]string{"None": "returned None to be shown", "{'text': None}": "returned None",
		"len": "returned <built-in function len>", "['hi']": "a message 'hi'", "[{'content': 3}]": "a message {'content': 3}"} {
		for fault, value := range map[string]string{"resets": value, "returns": "[" + value + "]"} {
			if err := ask(fault, value); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want %q", fault, value, err, want)
			}
		}
	}
	for _, value := range []string{"'None'", "''", "3", "[{'role': 'user', 'content': None}]", "{'text': 'a'}"} {
		if err := ask("resets", value); err != nil && strings.Contains(err.Error(), "to be shown") {
			t.Errorf("%s: %v", value, err)
		}
	}
}
