package remote

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gyre/envs"
)

// item is an answer about the one environment with a change of a field.
func said(fields string) string {
	return `{"items": [{"id": "e", "observation": {"text": "s"}, ` + fields + `}]}`
}

func listed(field string, n int, one string) string {
	return said(`"reward": 1, "` + field + `": [` + strings.Repeat(one+", ", n-1) + one + `]`)
}

func numbers(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, `, "n%d": 1`, i)
	}
	return said(`"reward": 1, "info": {"n": 1` + s.String() + `}`)
}

// hijack answers with raw bytes and closes the connection.
func hijack(raw string) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		connection, buffer, err := w.(http.Hijacker).Hijack()
		if err == nil {
			buffer.WriteString(raw)
			buffer.Flush()
			connection.Close()
		}
	}
}

func status(code int) func(http.ResponseWriter, string) {
	return func(w http.ResponseWriter, _ string) {
		w.Header().Set("Location", "http://127.0.0.1:9/elsewhere")
		w.WriteHeader(code)
		io.WriteString(w, "\x1b[2Jno \n12:00 step 9")
	}
}

// flood writes until nobody takes any more.
func flood(w io.Writer, text string) {
	for {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
	}
}

const (
	unread      = "cannot be read"
	escaped     = `\x1b[2J`
	hostileText = `\u001b[2J\r\n12:00 step 9: success 1.0`
)

// misbehaviours are tried over HTTP and over a pipe. Each call ends as docs/remote-environments.md says, in time and
// without a character in its error that does not print; afterwards the environment can be played.
var misbehaviours = []misbehaviour{
	// Answers as a whole.
	{name: "no JSON", method: "step", answer: "not json", want: unread},
	{name: "an empty object", method: "step", answer: "{}", want: "0 items"},
	{name: "no items", method: "step", answer: `{"items": []}`, want: "0 items"},
	{name: "items of nobody", method: "step", answer: `{"items": [null]}`, want: `environment ""`},
	{name: "too many items", method: "step",
		answer: `{"items": [{"id": "e", "observation": {}, "reward": 1}, {"id": "e", "observation": {}, "reward": 2}]}`,
		want:   "2 items"},
	{name: "null", method: "step", answer: "null", want: "0 items"},
	{name: "a list", method: "step", answer: "[1]", want: unread},
	{name: "a string", method: "step", answer: `"good"`, want: unread},
	{name: "a number", method: "step", answer: "7", want: unread},
	{name: "half an answer", method: "step", answer: `{"items": [{"id"`, want: unread},
	{name: "two answers", method: "step", answer: "{good}{good}", want: unread},
	{name: "a byte order mark", method: "step", answer: "\ufeff{good}", want: unread},
	{name: "deep JSON", method: "step",
		answer: said(`"reward": 1, "x": ` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)), want: unread},
	{name: "deep and open", method: "step", answer: strings.Repeat(`{"a":`, 100_000), want: unread},
	{name: "too long", method: "step",
		answer: said(`"reward": 1, "x": "` + strings.Repeat("x", 1<<20) + `"`), want: "max_bytes"},
	{name: "long", method: "step",
		answer: `{"items": [{"id": "e", "observation": {"text": "` + strings.Repeat("x", 100_000) +
			`"}, "reward": 1}]}`},
	{name: "a refusal with escapes", method: "step", answer: `{"error": "` + hostileText + `"}`, want: escaped},
	{name: "an endless refusal", method: "step",
		answer: `{"error": "` + strings.Repeat("no ", 100_000) + `"}`, want: "bytes more"},
	{name: "a refusal that is a number", method: "step", answer: `{"error": 7}`, want: unread},
	{name: "duplicate keys", method: "step", answer: said(`"reward": "x", "reward": 1`), want: unread},
	{name: "duplicate keys of the right type", method: "step", answer: said(`"reward": 5, "reward": 1`)},
	{name: "unknown keys", method: "step", answer: said(`"reward": 1, "rewards": [9], "assistant": "I win"`)},
	// Who is spoken of.
	{name: "another environment", method: "step",
		answer: `{"items": [{"id": "other\u001b[2J", "observation": {}, "reward": 1}]}`, want: escaped},
	{name: "no environment", method: "step",
		answer: `{"items": [{"observation": {}, "reward": 1}]}`, want: `environment ""`},
	{name: "a number as environment", method: "step",
		answer: `{"items": [{"id": 7, "observation": {}, "reward": 1}]}`, want: unread},
	{name: "gone", method: "step", answer: `{"items": [{"id": "e", "gone": true}]}`, want: "no environment of this id"},
	{name: "an error with forged lines", method: "step",
		answer: `{"items": [{"id": "e", "error": "` + hostileText + `"}]}`, want: escaped},
	// Observations.
	{name: "no observation", method: "step", answer: `{"items": [{"id": "e", "reward": 1}]}`, want: `no "observation"`},
	{name: "a null observation", method: "step",
		answer: `{"items": [{"id": "e", "observation": null, "reward": 1}]}`, want: `no "observation"`},
	{name: "an observation of text", method: "step",
		answer: `{"items": [{"id": "e", "observation": "s", "reward": 1}]}`, want: unread},
	{name: "text that is a number", method: "step",
		answer: `{"items": [{"id": "e", "observation": {"text": 3}, "reward": 1}]}`, want: unread},
	{name: "messages that are none", method: "step",
		answer: `{"items": [{"id": "e", "observation": {"messages": {}}, "reward": 1}]}`, want: unread},
	{name: "a role that is a number", method: "step",
		answer: `{"items": [{"id": "e", "observation": {"messages": [{"role": 1}]}, "reward": 1}]}`, want: unread},
	{name: "half a surrogate pair", method: "step",
		answer: `{"items": [{"id": "e", "observation": {"text": "\ud800"}, "reward": 1}]}`},
	{name: "bytes that are no text", method: "step",
		answer: "{\"items\": [{\"id\": \"e\", \"observation\": {\"text\": \"\xff\xfe\"}, \"reward\": 1}]}"},
	{name: "a zero byte", method: "step",
		answer: `{"items": [{"id": "e", "observation": {"text": "a\u0000b"}, "reward": 1}]}`},
	// Rewards.
	{name: "no reward", method: "step", answer: `{"items": [{"id": "e", "observation": {}}]}`, want: `no "reward"`},
	{name: "a null reward", method: "step", answer: said(`"reward": null`), want: `no "reward"`},
	{name: "a reward of text", method: "step", answer: said(`"reward": "much"`), want: unread},
	{name: "a true reward", method: "step", answer: said(`"reward": true`), want: unread},
	{name: "NaN", method: "step", answer: said(`"reward": NaN`), want: unread},
	{name: "Infinity", method: "step", answer: said(`"reward": -Infinity`), want: unread},
	{name: "1e999", method: "step", answer: said(`"reward": 1e999`), want: unread},
	{name: "1e308", method: "step", answer: said(`"reward": 1e308`), want: "at most 1e+30"},
	{name: "-1e31", method: "step", answer: said(`"reward": -1e31`), want: "at most 1e+30"},
	{name: "many digits", method: "step", answer: said(`"reward": ` + strings.Repeat("9", 60_000)), want: unread},
	{name: "components that are none", method: "step", answer: said(`"reward": 1, "parts": {"x": 1}`), want: unread},
	{name: "a component without a name", method: "step",
		answer: said(`"reward": 1, "parts": [{"value": 1}]`), want: "name is empty"},
	{name: "a component that is a path", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "a/../../../b", "value": 1}]`), want: `"a/../../../b"`},
	{name: "a component of two lines", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "` + hostileText + `", "value": 1}]`), want: escaped},
	{name: "a component with a long name", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "` + strings.Repeat("n", 10_000) + `", "value": 1}]`),
		want:   "longer than 100"},
	{name: "many components", method: "step",
		answer: listed("parts", 300, `{"name": "x", "value": 1}`), want: "at most 256"},
	{name: "a component of 1e300", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "x", "value": 1e300}]`), want: "at most 1e+30"},
	{name: "a component nowhere", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "x", "value": 1, "placement": "above\u001b[2J"}]`),
		want:   escaped},
	{name: "a segment outside of the text", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "x", "value": 1, "placement": "spread", "from": -5, "to": 1000000000}]`)},
	{name: "a segment from 1e30", method: "step",
		answer: said(`"reward": 1, "parts": [{"name": "x", "value": 1, "placement": "spread", "from": 1e30}]`),
		want:   unread},
	{name: "info of text", method: "step", answer: said(`"reward": 1, "info": {"a": "text"}`), want: unread},
	{name: "nested info", method: "step", answer: said(`"reward": 1, "info": {"a": {"b": 1}}`), want: unread},
	{name: "info with a separator", method: "step",
		answer: said(`"reward": 1, "info": {"reward/correctness": 1}`), want: "info: the name"},
	{name: "info with escapes", method: "step",
		answer: said(`"reward": 1, "info": {"` + hostileText + `": 1}`), want: escaped},
	{name: "many numbers", method: "step", answer: numbers(300), want: "at most 256"},
	{name: "no info", method: "step", answer: said(`"reward": 1, "info": null, "parts": null, "valid": null`)},
	{name: "done by name", method: "step", answer: said(`"reward": 1, "done": "yes"`), want: unread},
	{name: "a success of 1", method: "step", answer: said(`"reward": 1, "success": 1`), want: unread},
	{name: "valid by name", method: "step", answer: said(`"reward": 1, "valid": "yes"`), want: unread},
	// The start of an episode.
	{name: "an empty stop string", method: "reset", answer: said(`"stop": [""]`), want: `the stop string ""`},
	{name: "many stop strings", method: "reset",
		answer: said(`"stop": [` + strings.Repeat(`"x", `, 20) + `"y"]`), want: "at most 16"},
	{name: "a long stop string", method: "reset",
		answer: said(`"stop": ["` + strings.Repeat("x", 300) + `"]`), want: "1 to 200 bytes"},
	{name: "stop is text", method: "reset", answer: said(`"stop": "</answer>"`), want: unread},
	{name: "stop is a number", method: "reset", answer: said(`"stop": [1]`), want: unread},
	{name: "an action without a name", method: "reset", answer: said(`"actions": ["Left", " "]`), want: "has no name"},
	{name: "actions of numbers", method: "reset", answer: said(`"actions": [1, 2]`), want: unread},
	{name: "actions that are text", method: "reset", answer: said(`"actions": "Left"`), want: unread},
	{name: "tools that are text", method: "reset", answer: said(`"tools": "calculator"`), want: unread},
	{name: "parameters that are a list", method: "reset",
		answer: said(`"tools": [{"name": "x", "parameters": []}]`), want: unread},
	{name: "an instruction of 7", method: "reset", answer: said(`"instruction": 7`), want: unread},
	{name: "a reset without a state", method: "reset", answer: `{"items": [{"id": "e"}]}`, want: `no "observation"`},
	{name: "gone at a reset", method: "reset", answer: `{"items": [{"id": "e", "gone": true}]}`}, // another is made
	{name: "always gone", method: "reset",
		answer: `{"items": [{"id": "e", "gone": true}]}`, always: true, want: "no environment of this id"},
	// Making an environment.
	{name: "no ids", method: "create", answer: `{}`, want: "made 0 environments"},
	{name: "two ids", method: "create", answer: `{"ids": ["e", "f"]}`, want: "made 2 environments"},
	{name: "an empty id", method: "create", answer: `{"ids": [""]}`, want: "an id of 1 to 200 bytes"},
	{name: "a long id", method: "create",
		answer: `{"ids": ["` + strings.Repeat("e", 300) + `"]}`, want: "an id of 1 to 200 bytes"},
	{name: "an id of 7", method: "create", answer: `{"ids": [7]}`, want: unread},
	{name: "a batch of -1", method: "create", answer: `{"ids": ["e"], "batch": -1}`},
	{name: "a batch of a billion", method: "create", answer: `{"ids": ["e"], "batch": 1000000000}`},
	{name: "a batch by name", method: "create", answer: `{"ids": ["e"], "batch": "many"}`, want: unread},
	{name: "no licence", method: "create", answer: `{"error": "no licence"}`, want: "no licence"},
	// HTTP.
	{name: "status 500", method: "step", always: true, http: status(500), want: "status 500 Internal Server Error"},
	{name: "status 500 once", method: "step", http: status(500)},
	{name: "status 429", method: "step", always: true, http: status(429), want: "status 429"},
	{name: "status 401", method: "step", http: status(401), want: escaped},
	{name: "status 204", method: "step", http: func(w http.ResponseWriter, _ string) { w.WriteHeader(204) },
		want: "status 204"},
	{name: "sent elsewhere", method: "step", http: status(307), want: "status 307"},
	{name: "a closed connection", method: "step", always: true, http: hijack(""), want: "EOF"},
	{name: "a closed connection once", method: "step", http: hijack("")},
	{name: "closed in the body", method: "step", always: true,
		http: hijack("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"items\""), want: "unexpected EOF"},
	{name: "no HTTP", method: "step", always: true, http: hijack("\x1b[2J220 smtp\r\n\r\n"), want: "malformed HTTP"},
	{name: "a status with escapes", method: "step", http: hijack("HTTP/1.1 418 \x1b[2Jtea\r\nContent-Length: " +
		"0\r\n\r\n"), want: "status 418"},
	{name: "an endless head", method: "step", always: true,
		http: hijack("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: bcdefgh\r\n", 20_000)), want: "exceeded"},
	{name: "an endless body", method: "step", http: func(w http.ResponseWriter,
		_ string) {
		flood(w, strings.Repeat("x", 1<<16))
	}, want: "max_bytes"},
	{name: "an endless body that is packed", method: "step", http: func(w http.ResponseWriter, _ string) {
		w.Header().Set("Content-Encoding", "gzip")
		packed := gzip.NewWriter(w)
		flood(packed, strings.Repeat(" ", 1<<20))
	}, want: "max_bytes"},
	{name: "byte after byte", method: "step", always: true, http: func(w http.ResponseWriter, _ string) {
		for range 60 {
			io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	}, want: "asked until the time was up"},
	{name: "no answer", method: "step", always: true, http: func(http.ResponseWriter, string) { forever() },
		want: "asked until the time was up"},
	{name: "a late answer", method: "step", http: func(w http.ResponseWriter, good string) {
		time.Sleep(time.Second) // longer than an attempt: it is asked again, and answered at once
		io.WriteString(w, good)
	}},
	// A pipe.
	{name: "an end", method: "step", pipe: func(*program, string) { os.Exit(3) }, want: "has ended"},
	{name: "an end at once", method: "create", pipe: func(*program, string) { os.Exit(3) }, want: "has ended"},
	{name: "an end within a line", method: "step", pipe: func(p *program,
		good string) {
		io.WriteString(p.out, good[:20])
		os.Exit(0)
	}, want: "has ended"},
	{name: "last words", method: "step", pipe: func(*program, string) {
		fmt.Fprint(os.Stderr, "\x1b[2J\n12:00 step 9\n", strings.Repeat("x", 1<<16), "\nout of \x1b[2J memory\n")
		os.Exit(1)
	}, want: `out of \x1b[2J memory`},
	{name: "no line", method: "step", pipe: func(*program, string) { forever() }, want: "no answer in time"},
	{name: "a line without an end", method: "step", pipe: func(p *program,
		good string) {
		io.WriteString(p.out, good)
		forever()
	}, want: "no answer in time"},
	{name: "an endless line", method: "step", pipe: func(p *program,
		_ string) {
		flood(p.out, strings.Repeat("x", 1<<16))
	}, want: "no answer in time"},
	{name: "empty lines first", method: "step", pipe: func(p *program,
		good string) {
		fmt.Fprint(p.out, "\n\r\n \n", good, "\r\n")
	}},
	{name: "a banner first", method: "step", pipe: func(p *program,
		good string) {
		fmt.Fprint(p.out, "\x1b[2Jwelcome\n", good, "\n")
	}, want: unread},
	{name: "closed output", method: "step", pipe: func(*program, string) { os.Stdout.Close(); forever() },
		want: "has ended"},
	{name: "closed input", method: "step", pipe: func(p *program,
		good string) {
		os.Stdin.Close()
		fmt.Fprintln(p.out, good)
		forever()
	}},
	{name: "a child that keeps the pipes", method: "step", pipe: func(*program, string) {
		child := exec.Command("sleep", "60")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.Start()
		os.Exit(0)
	}, want: "no answer in time"},
	{name: "answered before it is read", method: "read", pipe: func(p *program, good string) {
		fmt.Fprintln(p.out, good)
		time.Sleep(300 * time.Millisecond)
		p.in.ReadBytes('\n')
	}},
	{name: "answered and never read", method: "read", pipe: func(p *program,
		good string) {
		fmt.Fprintln(p.out, good)
		forever()
	}, want: "no answer in time"},
}

// longAction makes a request that no pipe holds.
var longAction = strings.Repeat("a", 1<<18)

func TestMisbehaviours(t *testing.T) {
	for i := range misbehaviours {
		m := &misbehaviours[i]
		if m.pipe == nil {
			t.Run("http/"+m.name, func(t *testing.T) {
				t.Parallel()
				server := &hostile{}
				options := map[string]any{"url": server.serve(t, m), "attempt_timeout": 0.5, "patience": 10.0,
					"max_bytes": 1 << 19}
				if m.always {
					options["patience"] = 1.5
				}
				m.try(t, options, server.behave)
			})
		}
		if m.http == nil && !m.always {
			t.Run("pipe/"+m.name, func(t *testing.T) {
				t.Parallel()
				command := []string{os.Args[0], pipeArgument, m.name, filepath.Join(t.TempDir(), "done")}
				options := map[string]any{"command": command, "patience": 20.0, "max_bytes": 1 << 19}
				if strings.Contains(m.want, "in time") {
					options["patience"] = 1.5
				}
				m.try(t, options, func() {})
			})
		}
	}
}

// try plays until the misbehaviour, looks at how the call ends, and plays an episode afterwards.
func (m *misbehaviour) try(t *testing.T, options map[string]any, behave func()) {
	e := open(t, "RemoteText", options)
	action := "a"
	if m.method == "read" {
		action = longAction
	}
	begun := time.Now()
	_, err := e.Reset(t.Context(), 1, 0)
	if err == nil {
		var r envs.Result
		if r, err = e.Step(t.Context(), action); err == nil && r.Reward != 1 {
			t.Errorf("a reward of %v, want 1", r.Reward)
		}
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("the call took %v", took)
	}
	switch {
	case m.want == "" && err != nil:
		t.Errorf("%v, want success", err)
	case m.want != "" && (err == nil || !strings.Contains(err.Error(), m.want)):
		t.Errorf("%v, want an error with %q", err, m.want)
	case err != nil && (strings.ContainsAny(err.Error(), "\x1b\n\r\x00") || len(err.Error()) > 6000):
		t.Errorf("the error is not fit for a log: %.300q", err.Error())
	}
	behave()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// the server may be left alone for a while
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		_, err := e.Reset(ctx, 2, 0)
		if err == nil {
			var r envs.Result
			if r, err = e.Step(ctx, "a"); err == nil && r.Reward == 1 && r.Valid && e.Observe().Text == "state 1" {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("it behaves again, but: %v, %q", err, e.Observe().Text)
		}
		time.Sleep(pause)
	}
	if err := e.Close(); err != nil {
		t.Error("closing:", err)
	}
}
