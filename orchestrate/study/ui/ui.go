// Package ui shows runs, studies, steps and episodes on local pages, and writes episodes as one HTML file.
//
//	static/ (HTML, CSS, modules of JavaScript as they stand) ◀── Handler ──▶ /api (JSON) ◀── packages runs and episodes
//
// The pages read and change nothing. They load nothing from elsewhere, and a content security policy says so to the
// browser. What policies and environments wrote reaches the page as JSON and is put there as text.
package ui

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"gyre/internal/table"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/episodes"
	"gyre/orchestrate/study/runs"
)

//go:embed static
var static embed.FS

// policy lets the pages use this server and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Server answers for what lies below some folders. It is safe for concurrent use.
type Server struct {
	roots []string
	// Paired compares the last validations of runs with the first run's, task by task, and says what it compared; nil =
	// nobody does. It is set before the first request.
	Paired func([]*rundir.Run) (*table.Table, string, error)

	mu      sync.Mutex        // guards what follows
	runs    map[string]*known // by folder
	studies []string
}

// known is a run that was found.
type known struct {
	series *runs.Series
	source *episodes.Source
}

// New finds the runs below folders; those that come later are found when somebody looks.
func New(roots []string) (*Server, error) {
	s := &Server{roots: roots, runs: map[string]*known{}}
	_, err := s.find()
	return s, err
}

// find looks for runs and gives their folders in order.
func (s *Server) find() ([]string, error) {
	found, studies, err := runs.Find(s.roots)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.studies = studies
	for _, dir := range found {
		if s.runs[dir] == nil {
			source, err := episodes.Open(dir, "")
			if err != nil {
				return nil, err
			}
			s.runs[dir] = &known{runs.OpenSeries(dir), source}
		}
	}
	return found, nil
}

// run is one that was found: no other path is read.
func (s *Server) run(dir string) (*known, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[dir]; r != nil {
		return r, nil
	}
	return nil, &missing{"there is no run " + dir}
}

// missing is what the address of a page names and is not there.
type missing struct{ what string }

func (m *missing) Error() string { return m.what }

// Handler answers GET requests that name this machine: a page of another site, whose name was made to lead here, gets
// nothing.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]func(context.Context, query) (any, error){"runs": s.list, "run": s.one,
		"series": s.curves, "compare": s.compare, "why": s.suspected, "study": s.study, "step": s.step, "search": s.search,
		"episodes": s.views, "same": s.same} {
		mux.HandleFunc("GET /api/"+path, func(w http.ResponseWriter, r *http.Request) { reply(w, r, answer) })
	}
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is part of the program
	}
	mux.Handle("GET /", http.FileServerFS(files))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this server answers to the names of this machine only", http.StatusForbidden)
			return
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-cache")
		mux.ServeHTTP(w, r)
	})
}

// Serve listens on loopback, calls ready with the address of the page, and answers until ctx ends.
func (s *Server) Serve(ctx context.Context, port string, ready func(url string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return fmt.Errorf("%w: --port names another port, 0 any free one", err)
	}
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	ready("http://" + listener.Addr().String() + "/")
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// fileSource is a page that holds everything: its policy allows one script, by its digest, and no request.
const fileSource = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{{.Digest}}'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>{{.Style}}</style>
</head>
<body>
<header><b>{{.Title}}</b></header>
<main id="main"></main>
<footer id="detail" hidden></footer>
<script type="application/json" id="episodes">{{.Episodes}}</script>
<script type="module">{{.Script}}</script>
</body>
</html>
`

var fileTemplate = template.Must(template.New("file").Parse(fileSource))

// fileScript shows what the page holds.
const fileScript = `
const views = JSON.parse(document.getElementById("episodes").textContent);
let shade = "text";
const draw = (next) => {
  shade = next;
  document.getElementById("main").replaceChildren(h("p", { class: "bar" }, field("colour ( c )",
    choice(Object.entries(shades).map(([key, s]) => [key, s.name]), shade, draw))),
    episodeView(views, shade, document.getElementById("detail")));
};
addEventListener("keydown", (event) => walk(event, shade, draw));
draw(shade);
`

// moduleWords join modules to one script: what one exports the next has anyway.
var moduleWords = regexp.MustCompile(`(?m)^import .*$|^export `)

// WriteFile writes episodes as one HTML file that needs neither this program nor a network.
func WriteFile(w io.Writer, title string, views []*episodes.View) error {
	encoded, err := json.Marshal(views) // < and > are escaped: no text of an episode ends the element
	if err != nil {
		return err
	}
	script := ""
	for _, name := range []string{"dom.js", "episode.js"} {
		source, err := static.ReadFile("static/" + name)
		if err != nil {
			return err
		}
		script += moduleWords.ReplaceAllString(string(source), "")
	}
	script += fileScript
	style, err := static.ReadFile("static/style.css")
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(script))
	return fileTemplate.Execute(w, map[string]any{
		"Title":    title,
		"Digest":   fmt.Sprintf("sha256-%s", base64.StdEncoding.EncodeToString(digest[:])),
		"Style":    template.CSS(style),
		"Script":   template.JS(script),
		"Episodes": template.JS(encoded),
	})
}
