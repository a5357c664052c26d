package tinker

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"filippo.io/age"

	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/serve"
)

// saveExternal writes the files that PEFT opens, or of a full model transformers, each encrypted if the client asks.
func (s *Server) saveExternal(_ context.Context, in struct {
	saving
	Recipients []string `json:"age_encryption_recipients"`
}) (any, error) {
	return s.save(in.saving, external, in.Recipients...)
}

// encrypt replaces the files of a folder by encrypted ones.
func encrypt(dir string, recipients []string) error {
	var to []age.Recipient
	for _, text := range recipients {
		recipient, err := age.ParseX25519Recipient(text)
		if err != nil {
			return serve.Bad("age_encryption_recipients", "%.100q is no native age key (age1…): %v", text, err)
		}
		to = append(to, recipient)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if err := encryptFile(path, to); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func encryptFile(path string, to []age.Recipient) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.Create(path + ".age")
	if err != nil {
		return err
	}
	defer out.Close()
	w, err := age.Encrypt(out, to...)
	if err == nil {
		_, err = io.Copy(w, from)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = out.Close()
	}
	return err
}

// urls says where the files of a checkpoint are to be had. They carry no signature: whoever reaches the server without
// a key has them, and with one sends it.
func (s *Server) urls(w http.ResponseWriter, r *http.Request) {
	p, err := s.asked(r)
	var files []os.DirEntry
	if err == nil && s.options.KeyNeeded {
		err = &serve.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Message: "this server signs no URLs: " +
			"with its key, GET " + root + "training_runs/" + p.run + "/checkpoints/" + p.id() + "/archive gives a tar file"}
	}
	if err == nil {
		files, err = os.ReadDir(filepath.Join(s.dir(p), "actor"))
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	all := map[string]string{}
	for _, f := range files {
		all[f.Name()] = fmt.Sprintf("%s://%s%straining_runs/%s/checkpoints/%s/files/%s", scheme, r.Host, root, p.run, p.id(),
			f.Name())
	}
	serve.Answer(w, http.StatusOK, map[string]any{"urls": all, "expires": time.Now().UTC().Add(24 * time.Hour)})
}

// file sends one file of a checkpoint's model.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	p, err := s.asked(r)
	if name := r.PathValue("file"); err == nil && !goodNames.MatchString(name) {
		err = missing("file", name)
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	http.ServeFile(w, r, filepath.Join(s.dir(p), "actor", r.PathValue("file")))
}

// archive sends the files of a checkpoint's model as a tar file.
func (s *Server) archive(w http.ResponseWriter, r *http.Request) {
	p, err := s.asked(r)
	dir := filepath.Join(s.dir(p), "actor")
	if err == nil {
		err = checkpoint.VerifyModel(dir)
	}
	if err != nil {
		serve.FailAs(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", p.name+".tar"))
	out := tar.NewWriter(w)
	err = out.AddFS(os.DirFS(dir))
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the client sees that the rest is missing
	}
}
