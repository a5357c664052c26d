package pull

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"gyre/internal/atomicfile"
)

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
	if err != nil {
		return err
	}
	files = wanted(files)
	if !contains(files, "config.json") {
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
		if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o755), os.WriteFile(stamp, []byte(repository+"@"+commit), 0o644)); err != nil {
			return err
		}
	}
	for _, f := range files {
		address := fmt.Sprintf("%s/%s/resolve/%s/%s", hub.Endpoint, repository, url.PathEscape(commit), url.PathEscape(f.name))
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

func contains(files []file, name string) bool {
	for _, f := range files {
		if f.name == name {
			return true
		}
	}
	return false
}
