package pull

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gyre/internal/hub"
)

// server is a hub with one repository, org/model. spoil is called before each file is sent and may send something
// else.
type server struct {
	files    map[string]string
	digests  map[string]string // announced; "" = none
	sizes    map[string]int    // announced; the true ones by default
	commit   string
	requests []string
	spoil    func(name string, w http.ResponseWriter) bool
	noRange  bool
}

func newHub() *server {
	h := &server{commit: "abc", digests: map[string]string{}, sizes: map[string]int{}, files: map[string]string{
		"config.json": `{}`, "tokenizer.json": "tok", "model.safetensors": strings.Repeat("0123456789", 5000),
		"pytorch_model.bin": "no",
		"README.md":         "no", "onnx/model.onnx": "no", ".gitattributes": "no", "../evil.json": "no",
		"LICENSE": "yes"}}
	sum := sha256.Sum256([]byte(h.files["model.safetensors"]))
	h.digests["model.safetensors"] = hex.EncodeToString(sum[:])
	return h
}

func (h *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/models/org/model/revision/main" {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(h.files)) {
			data := h.files[name]
			size, ok := h.sizes[name]
			if !ok {
				size = len(data)
			}
			entry := fmt.Sprintf(`{"rfilename":%q,"size":%d`, name, size)
			if d := h.digests[name]; d != "" {
				entry += fmt.Sprintf(`,"lfs":{"sha256":%q,"size":%d}`, d, size)
			}
			list = append(list, entry+"}")
		}
		fmt.Fprintf(w, `{"sha":%q,"siblings":[%s]}`, h.commit, strings.Join(list, ","))
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/org/model/resolve/"+h.commit+"/")
	data, found := h.files[name]
	if !ok || !found {
		http.NotFound(w, r)
		return
	}
	h.requests = append(h.requests, name+" "+r.Header.Get("Range"))
	if h.spoil != nil && h.spoil(name, w) {
		return
	}
	if h.noRange {
		w.Write([]byte(data))
		return
	}
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(data))
}

func get(t *testing.T, h *server, dir string) error {
	t.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	return Model(context.Background(), hub.Hub{Endpoint: s.URL, Client: http.DefaultClient}, "org/model", "main", dir,
		func(string, int64, int64) {})
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

func TestPull(t *testing.T) {
	h, parent := newHub(), t.TempDir()
	dir := filepath.Join(parent, "model")
	if err := get(t, h, dir); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != "LICENSE config.json model.safetensors tokenizer.json" || names(t,
		parent) != "model" {
		t.Errorf("downloaded %s into %s", got, names(t, parent))
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "model.safetensors")); string(data) != h.files["model.safetensors"] {
		t.Error("the weights differ")
	}
}

// cut sends the first n bytes of the weights and drops the connection.
func cut(h *server, n int) func(string, http.ResponseWriter) bool {
	return func(name string, w http.ResponseWriter) bool {
		if name != "model.safetensors" {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(h.files[name])))
		w.Write([]byte(h.files[name][:n]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

func TestResume(t *testing.T) {
	for _, noRange := range []bool{false, true} {
		h, parent := newHub(), t.TempDir()
		h.noRange = noRange
		times := 0
		broken := cut(h, 20000)
		h.spoil = func(name string, w http.ResponseWriter) bool { // once, within a call
			if name == "model.safetensors" {
				times++
			}
			return times == 1 && broken(name, w)
		}
		if err := get(t, h, filepath.Join(parent, "model")); err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(h.requests, ","); !strings.Contains(all, "model.safetensors bytes=20000-") {
			t.Errorf("requests: %s", all)
		}
	}
	// Between calls, too.
	h, parent := newHub(), t.TempDir()
	dir := filepath.Join(parent, "model")
	broken, times := cut(h, 30000), 0
	h.spoil = func(name string, w http.ResponseWriter) bool { // breaks, and then refuses
		if name != "model.safetensors" {
			return false
		}
		if times++; times == 1 {
			return broken(name, w)
		}
		http.Error(w, "down", http.StatusServiceUnavailable)
		return true
	}
	if err := get(t, h, dir); err == nil || !strings.Contains(err.Error(), "model.safetensors") {
		t.Fatalf("error %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("an unfinished model has its name")
	}
	h.spoil, h.requests = nil, nil
	if err := get(t, h, dir); err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(h.requests, ","); !strings.Contains(all, "model.safetensors bytes=30000-") ||
		strings.Contains(all, "config.json") {
		t.Errorf("the second call asked for %s", all)
	}
}

func TestWrongDownloads(t *testing.T) {
	for want, change := range map[string]func(*server){
		"SHA-256 is":     func(h *server) { h.files["model.safetensors"] = strings.Repeat("1", 50000) },
		"downloaded":     func(h *server) { h.sizes["tokenizer.json"] = 2 },
		"announced 9":    func(h *server) { h.sizes["tokenizer.json"] = 9 },
		"no config.json": func(h *server) { delete(h.files, "config.json") },
		"403": func(h *server) {
			h.spoil = func(_ string, w http.ResponseWriter) bool {
				http.Error(w, "",
					http.StatusForbidden)
				return true
			}
		},
		"cannot be read": func(h *server) { h.commit = "\x01" },
	} {
		h, parent := newHub(), t.TempDir()
		change(h)
		err := get(t, h, filepath.Join(parent, "model"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one with %q", err, want)
		}
		if _, err := os.Stat(filepath.Join(parent, "model")); err == nil {
			t.Errorf("%s: the directory appears", want)
		}
	}
	h := hub.Hub{Endpoint: "http://127.0.0.1:1", Client: http.DefaultClient}
	for _, name := range []string{"model", "../x", "a/b/c", "org/..", ""} {
		if err := Model(context.Background(), h, name, "main", t.TempDir(), nil); err == nil ||
			!strings.Contains(err.Error(), "not a model name") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Without safetensors the pickled weights are taken, and nothing else that is called .bin.
func TestPullTakesPickledWeightsWhereThereAreNoOthers(t *testing.T) {
	h, dir := newHub(), filepath.Join(t.TempDir(), "model")
	delete(h.files, "model.safetensors")
	h.files["adapter_model.safetensors"], h.files["training_args.bin"] = "no", "no"
	if err := get(t, h, dir); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); got != "LICENSE config.json pytorch_model.bin tokenizer.json" {
		t.Errorf("downloaded %s", got)
	}
}

// The token goes with every request, and a hub that wants one is told how to give it.
func TestTheTokenIsSent(t *testing.T) {
	h := newHub()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer s.Close()
	pulled := func(token string) error {
		return Model(t.Context(), hub.Hub{Endpoint: s.URL, Client: http.DefaultClient, Token: token}, "org/model", "main",
			filepath.Join(t.TempDir(), "model"), func(string, int64, int64) {})
	}
	if err := pulled("secret"); err != nil {
		t.Errorf("with its token: %v", err)
	}
	if err := pulled(""); err == nil || !strings.Contains(err.Error(), "set HF_TOKEN") || strings.Contains(err.Error(),
		"secret") {
		t.Errorf("without: %v", err)
	}
}
