package remote

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// misbehaviour is what a server does once instead of the right thing.
type misbehaviour struct {
	name   string
	method string // at which call
	answer string // what it says; {good} is the right answer
	want   string // in the error of the call; "" = the call succeeds
	// always: it goes on until the test lets it behave. Over HTTP only.
	always bool
	// http and pipe, where set, do something else than to answer, and the case is tried there only.
	http func(w http.ResponseWriter, good string)
	pipe func(p *program, good string)
}

// right is what a good server answers.
func right(method string, r request) string {
	if method == "create" {
		return `{"ids": ["e"]}`
	}
	var items []string
	for _, i := range r.Items {
		items = append(items,
			fmt.Sprintf(`{"id": %q, "observation": {"text": "state %d"}, "reward": 1, "actions": ["a"]}`, i.ID, i.Seq))
	}
	return `{"items": [` + strings.Join(items, ", ") + `]}`
}

func (m *misbehaviour) says(good string) string { return strings.ReplaceAll(m.answer, "{good}", good) }

// hostile is a server over HTTP that behaves once it is told to, or after its one misbehaviour.
type hostile struct {
	mu   sync.Mutex // guards good
	good bool
}

// misbehaves tells whether the next call of the method is answered wrongly.
func (h *hostile) misbehaves(m *misbehaviour, method string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.good || method != m.method {
		return false
	}
	h.good = !m.always
	return true
}

func (h *hostile) behave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.good = true
}

func (h *hostile) serve(t *testing.T, m *misbehaviour) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, got *http.Request) {
		var r request
		if err := json.NewDecoder(got.Body).Decode(&r); err != nil {
			t.Error("a request that cannot be read:", err)
		}
		method := strings.TrimPrefix(got.URL.Path, "/")
		good := right(method, r)
		switch {
		case !h.misbehaves(m, method):
			io.WriteString(w, good)
		case m.http != nil:
			m.http(w, good)
		default:
			io.WriteString(w, m.says(good))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// program is a server on a pipe: this test's own executable.
type program struct {
	in  *bufio.Reader
	out io.Writer
}

// pipeArgument makes the test's executable a server on a pipe. The name of a misbehaviour and a file follow: the file
// is made when it has misbehaved.
const pipeArgument = "serve-on-a-pipe"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == pipeArgument {
		for i := range misbehaviours {
			if misbehaviours[i].name == os.Args[2] {
				(&program{bufio.NewReaderSize(os.Stdin, 1<<10), os.Stdout}).run(&misbehaviours[i], os.Args[3])
			}
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func (p *program) run(m *misbehaviour, done string) {
	for {
		if m.method == "read" { // it does not wait for the whole request
			if _, err := os.Stat(done); err != nil {
				if _, err := p.in.Peek(1); err != nil {
					return
				}
				first, _ := p.in.Peek(p.in.Buffered())
				if strings.Contains(string(first), `"step"`) {
					os.WriteFile(done, nil, 0o644)
					m.pipe(p, right("step", request{Items: []item{{ID: "e", Seq: 1}}}))
					continue
				}
			}
		}
		line, err := p.in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r struct {
			Method string `json:"method"`
			request
		}
		if err := json.Unmarshal(line, &r); err != nil {
			fmt.Fprintln(os.Stderr, "a request that cannot be read:", err)
			return
		}
		good := right(r.Method, r.request)
		_, err = os.Stat(done)
		switch {
		case err == nil || r.Method != m.method:
			fmt.Fprintln(p.out, good)
			continue
		default:
			os.WriteFile(done, nil, 0o644)
		}
		if m.pipe != nil {
			m.pipe(p, good)
		} else {
			fmt.Fprintln(p.out, m.says(good))
		}
	}
}

// forever is longer than any call waits.
func forever() { time.Sleep(4 * time.Second) }
