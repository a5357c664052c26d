package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gyre/orchestrate/study/episodes"
)

// visit is a page to be opened on a screen of some width, keys to be pressed and what is to be done there.
type visit struct {
	Address string   `json:"address"`
	Width   int      `json:"width"`
	Keys    string   `json:"keys"`
	Acts    []string `json:"acts"` // "selector" is clicked, "selector := value" is filled in
}

// probe holds one page after the other in a frame, waits until it is there, and writes down what the browser made of it.
const probe = `<!DOCTYPE html><pre id="found"></pre><script>
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const look = async ({ address, width, keys, acts }) => {
  const frame = document.createElement("iframe");
  [frame.width, frame.height, frame.src] = [width, 900, address];
  document.body.append(frame);
  let page;
  for (let tries = 0; tries < 400 && !page?.querySelector("main[data-ready], .episode"); tries++) {
    await wait(50);
    page = frame.contentDocument;
  }
  for (const key of keys + " ") {
    page.body.dispatchEvent(new frame.contentWindow.KeyboardEvent("keydown", { key, bubbles: true }));
    await wait(400);
  }
  for (const act of acts || []) {
    const [selector, value] = act.split(" := "), element = page.querySelector(selector);
    if (value === undefined) element.click();
    else {
      element.value = value;
      for (const type of ["input", "change"]) element.dispatchEvent(new frame.contentWindow.Event(type, { bubbles: true }));
    }
    await wait(800);
  }
  page.querySelector(".token.policy")?.focus();
  const found = {
    width: page.documentElement.scrollWidth, title: page.title, text: page.body.innerText,
    scripts: page.querySelectorAll("script:not([src])").length, images: page.querySelectorAll("img").length,
    rows: page.querySelectorAll("tbody tr").length, curves: page.querySelectorAll(".curve").length,
    specials: [...page.querySelectorAll(".token.special")].map((e) => e.textContent), tiles: page.querySelectorAll(".tile").length,
    policy: page.querySelectorAll(".token.policy").length, detail: page.getElementById("detail").innerText,
    columns: page.querySelectorAll(".episode").length,
    wide: [...page.querySelectorAll("main *")].filter((e) => !e.closest(".scroll, .columns") &&
      e.getBoundingClientRect().right > page.documentElement.clientWidth + 1).map((e) => e.outerHTML.slice(0, 200)) };
  frame.remove();
  return found;
};
(async () => {
  const found = [];
  for (const visit of %s) found.push(await look(visit));
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>`

// seen is what a browser made of a page.
type seen struct {
	Width, Scripts, Images, Rows, Curves, Tiles, Policy, Columns int
	Title, Text, Detail                                          string
	Specials, Wide                                               []string
}

// browser starts a page server that lets the probe look into the pages, and gives a function that visits some.
func browser(t *testing.T, s *Server, files map[string][]byte) func(visits ...visit) []seen {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if program == "" && exec.Command(name, "--version").Run() == nil {
			program = name
		}
	}
	if program == "" {
		t.Skip("no chromium starts here: apt-get install chromium")
	}
	handler := s.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page, ok := files[r.URL.Path]; ok {
			w.Write(page)
			return
		}
		handler.ServeHTTP(framed{w}, r)
	}))
	t.Cleanup(server.Close)
	return func(visits ...visit) (found []seen) {
		t.Helper()
		list, err := json.Marshal(visits)
		if err != nil {
			t.Fatal(err)
		}
		files["/probe"] = fmt.Appendf(nil, probe, list)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
			"--no-first-run",
			"--user-data-dir="+t.TempDir(), fmt.Sprintf("--virtual-time-budget=%d", 30000*len(visits)), "--window-size=1500,1000", "--dump-dom",
			server.URL+"/probe")
		var messages bytes.Buffer
		command.Stderr = &messages
		out, err := command.Output()
		match := regexp.MustCompile(`(?s)<pre id="found">(.*?)</pre>`).FindSubmatch(out)
		if err != nil || match == nil || json.Unmarshal([]byte(html.UnescapeString(string(match[1]))), &found) != nil {
			t.Fatalf("%v: %v\n%.500s\n%.500s", visits, err, out, messages.String())
		}
		return found
	}
}

// framed lets a page of the same server hold the pages in a frame, and keeps the rest of their policy.
type framed struct{ http.ResponseWriter }

func (f framed) WriteHeader(status int) {
	if csp := f.Header().Get("Content-Security-Policy"); csp != "" {
		f.Header().Set("Content-Security-Policy", strings.Replace(csp, "frame-ancestors 'none'", "frame-ancestors 'self'", 1))
	}
	f.ResponseWriter.WriteHeader(status)
}

// Pages in a browser: they fit wide and narrow screens, show what there is, and run nothing that an episode says.
func TestPagesInABrowser(t *testing.T) {
	root, s := place(t)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	open := browser(t, s, map[string][]byte{})
	to := func(view string, pairs ...string) string {
		v := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			v.Add(pairs[i], pairs[i+1])
		}
		return "/#" + view + "?" + v.Encode()
	}
	first, other := "step:6:0:"+a, "step:5:0:"+b
	cases := []struct {
		name, address, keys string
		check               func(p seen) bool
	}{
		{"runs", "/", "", func(p seen) bool {
			return p.Rows == 2 && strings.Contains(p.Text, "83.3 %") && strings.Contains(p.Text, "study")
		}},
		{"a run", to("run", "run", a), "", func(p seen) bool { return p.Curves >= 3 && strings.Contains(p.Text, "step 6 of 6") }},
		{"two runs", to("run", "run", a, "run", b), "", func(p seen) bool {
			return p.Curves >= 6 && strings.Contains(p.Text, "run.seed")
		}},
		{"a study", to("study", "study", filepath.Join(root, "study")), "", func(p seen) bool {
			return p.Rows == 2 && strings.Contains(p.Text, "<b>base")
		}},
		{"a step", to("step", "run", a, "step", "6"), "", func(p seen) bool { return p.Rows == 3 && strings.Contains(p.Text, "12 of 12") }},
		{"episodes", to("episodes", "e", first, "e", other), "", func(p seen) bool {
			return p.Columns == 2 && strings.Contains(p.Text, "erst schön denken") && strings.Contains(p.Text, "onerror=")
		}},
		{"tokens", to("episodes", "e", first, "shade", "logprob"), "", func(p seen) bool {
			return p.Policy > 20 && strings.Contains(p.Detail, "log-prob") && strings.Contains(p.Detail, "advantage -1")
		}},
		{"colours by a key", to("episodes", "e", first), "ccc", func(p seen) bool { return strings.Contains(p.Text, "entropy: not recorded") }},
		{"what is not there", to("run", "run", "nowhere"), "", func(p seen) bool { return strings.Contains(p.Text, "there is no run nowhere") }},
		// the forged token stays text: it is not among the special ones
		{"owners", to("episodes", "e", first, "shade", "owner"), "", func(p seen) bool {
			return strings.Contains(p.Text, "<|im_end|>\n<|im_start|>assistant") && len(p.Specials) == 9
		}},
	}
	var visits []visit
	for _, width := range []int{1400, 390} {
		for _, c := range cases {
			visits = append(visits, visit{c.address, width, c.keys, nil})
		}
	}
	for i, p := range open(visits...) {
		c, width := cases[i%len(cases)], visits[i].Width
		if !c.check(p) {
			t.Errorf("%s at %d: %+v", c.name, width, p)
		}
		if p.Width > width {
			t.Errorf("%s: %d pixels wide on a screen of %d, too wide are %q", c.name, p.Width, width, p.Wide)
		}
		if p.Title == "owned" || p.Scripts > 0 || p.Images > 0 {
			t.Errorf("%s: text of an episode became markup: %+v", c.name, p)
		}
	}
}

// What a search over steps finds is put side by side, then the whole group of the first, then the same task of another
// step of another run, all by clicks.
func TestEpisodesAreComparedByClicks(t *testing.T) {
	root, s := place(t)
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	open := browser(t, s, map[string][]byte{})
	acts := []string{"input[type=search] := ONERROR", "tr:nth-child(1) input[type=checkbox]",
		"tr:nth-child(5) input[type=checkbox]", "main > p > button:last-child", "main > p.bar > button",
		"form select := " + b, "form input[type=number] := 5", "form button"}
	search := "/#search?run=" + url.QueryEscape(a)
	found := open(visit{search, 1400, "", acts[:4]}, visit{search, 390, "", acts})
	for i, want := range []seen{{Columns: 2, Width: 1400}, {Columns: 8, Width: 390}} {
		p := found[i]
		if p.Rows != want.Rows || p.Columns != want.Columns || p.Width > want.Width || p.Title == "owned" || p.Images > 0 {
			t.Errorf("visit %d: %+v, want %+v", i, p, want)
		}
	}
	if !strings.Contains(found[1].Text, "step 5 b") {
		t.Errorf("the other run is not shown: %s", found[1].Text)
	}
}

// The file of episodes works without a server.
func TestFileInABrowser(t *testing.T) {
	root, s := place(t)
	_, entry, err := s.entry(context.Background(), "step:6:1:"+filepath.Join(root, "a"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := s.runs[filepath.Join(root, "a")].source.View(context.Background(), entry)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := WriteFile(&page, "demo", []*episodes.View{v, v}); err != nil {
		t.Fatal(err)
	}
	open := browser(t, s, map[string][]byte{"/file.html": page.Bytes()})
	for i, p := range open(visit{"/file.html", 1400, "cc", nil}, visit{"/file.html", 390, "cc", nil}) {
		width := []int{1400, 390}[i]
		if p.Columns != 2 || p.Policy < 20 || p.Title != "demo" || p.Width > width || !strings.Contains(p.Detail, "advantage 1") {
			t.Errorf("at %d: %+v", width, p)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "a", "report.html")); err == nil {
		t.Error("something was written into the run")
	}
}

// 200 runs and a run of 5,000 steps are pages like others.
func TestLargeFoldersInABrowser(t *testing.T) {
	root, s := large(t)
	open := browser(t, s, map[string][]byte{})
	found := open(visit{"/", 1400, "", nil}, visit{"/", 390, "", nil},
		visit{"/#run?run=" + url.QueryEscape(filepath.Join(root, "long")), 1400, "", nil})
	for i, width := range []int{1400, 390} {
		if p := found[i]; p.Rows != 201 || p.Width > width {
			t.Errorf("at %d: %d runs, %d pixels wide", width, p.Rows, p.Width)
		}
	}
	if p := found[2]; p.Curves < 3 || !strings.Contains(p.Text, "step 5000") {
		t.Errorf("the long run: %+v", p)
	}
}

// What a run's history points at is one click away, and the episodes another.
func TestSuspectsInABrowser(t *testing.T) {
	root, _ := place(t)
	dir := filepath.Join(root, "gap")
	var lines strings.Builder
	for step := 1; step <= 16; step++ {
		fmt.Fprintf(&lines, "{\"schema\":1,\"step\":%d,\"rollout/sampler_equals_trainer\":0,\"rollout/logprob_gap_max\":2}\n", step)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"metrics.jsonl": lines.String(), "run.json": "{}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	address, click := "/#run?run="+url.QueryEscape(dir), []string{"details summary"}
	found := browser(t, s, map[string][]byte{})(visit{address, 1400, "", click}, visit{address, 390, "", click},
		visit{"/#run?run=" + url.QueryEscape(filepath.Join(root, "a")), 1400, "", click})
	for i, p := range found[:2] {
		if p.Rows != 1 || !strings.Contains(p.Text, "sampler gap") || !strings.Contains(p.Text, "up to 2 nats") ||
			p.Width > []int{1400, 390}[i] {
			t.Errorf("visit %d: %+v", i, p)
		}
	}
	if p := found[2]; !strings.Contains(p.Text, "None of") {
		t.Errorf("a sound run: %s", p.Text)
	}
}
