package pull

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
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
	body, err := h.get(ctx, fmt.Sprintf("%s/api/models/%s/revision/%s?blobs=true", h.Endpoint, repository, url.PathEscape(revision)), 0)
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

// get requests a URL from byte `from` on. The caller closes the body.
func (h Hub) get(ctx context.Context, address string, from int64) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
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
		return nil, err
	}
	switch {
	case from == 0 && answer.StatusCode == http.StatusOK:
		return answer.Body, nil
	case from > 0 && answer.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(answer.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)):
		return answer.Body, nil
	}
	answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, fmt.Errorf("%s: %s: the model does not exist, is private or asks for consent (set HF_TOKEN to a token that may read it)", address, answer.Status)
	case http.StatusOK, http.StatusRequestedRangeNotSatisfiable:
		return nil, errNoRange
	default:
		return nil, fmt.Errorf("%s: %s", address, answer.Status)
	}
}

// wanted chooses the files that make a usable model directory: configuration, tokenizer, template, and one kind of
// weights.
func wanted(files []file) []file {
	has := func(match func(string) bool) bool {
		for _, f := range files {
			if match(f.name) {
				return true
			}
		}
		return false
	}
	safe := func(n string) bool { return strings.HasSuffix(n, ".safetensors") && !strings.HasPrefix(n, "adapter_") }
	weights := safe
	if !has(safe) {
		weights = func(n string) bool { return strings.HasPrefix(n, "pytorch_model") && strings.HasSuffix(n, ".bin") }
	}
	var out []file
	for _, f := range files {
		if strings.Contains(f.name, "/") || path.Clean(f.name) != f.name || strings.HasPrefix(f.name, ".") || strings.Contains(f.name, `\`) {
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
