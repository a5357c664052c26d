package tinker

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/serve"
)

// saveExternal writes the files that PEFT opens, or of a full model transformers, each encrypted if the client asks.
func (s *Server) saveExternal(_ *http.Request, in struct {
	saving
	Recipients []string `json:"age_encryption_recipients"`
}) (any, error) {
	return s.save(in.saving, external, in.Recipients...)
}

// encrypt replaces the files of a folder by encrypted ones.
func encrypt(dir string, recipients []string) error {
	to, err := age.ParseRecipients(strings.NewReader(strings.Join(recipients, "\n")))
	if err != nil {
		return serve.Bad("age_encryption_recipients", "%.300q are no native age keys (age1…): %v", recipients, err)
	}
	files, err := os.ReadDir(dir)
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		err = cmp.Or(err, encryptFile(path, to), os.Remove(path))
	}
	return err
}

func encryptFile(path string, to []age.Recipient) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	return atomicfile.Write(path+".age", func(out io.Writer) error {
		w, err := age.Encrypt(out, to...)
		if err == nil {
			_, err = io.Copy(w, from)
		}
		if err == nil {
			err = w.Close()
		}
		return err
	})
}

// urls says where the files of a checkpoint are to be had. They carry no signature: whoever reaches the server without
// a key has them, and with one sends it.
func (s *Server) urls(r *http.Request, _ struct{}) (any, error) {
	p, err := s.asked(r)
	if err != nil {
		return nil, err
	}
	at := root + "training_runs/" + p.run + "/checkpoints/" + p.id()
	if s.options.KeyNeeded {
		return nil, serve.Refuse(http.StatusNotFound, "this server signs no URLs: with its key, GET %s/archive gives "+
			"a tar file", at)
	}
	files, err := os.ReadDir(filepath.Join(s.dir(p), "actor"))
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	all := map[string]string{}
	for _, f := range files {
		all[f.Name()] = scheme + "://" + r.Host + at + "/files/" + f.Name()
	}
	return map[string]any{"urls": all, "expires": time.Now().UTC().Add(24 * time.Hour)}, nil
}

// file sends one file of a checkpoint's model.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	p, err := s.asked(r)
	name := r.PathValue("file")
	if err == nil && !goodNames.MatchString(name) {
		err = missing("file", name)
	}
	if err != nil {
		serve.Fail(w, err)
		return
	}
	http.ServeFile(w, r, filepath.Join(s.dir(p), "actor", name))
}

// archive sends the files of a checkpoint's model as a tar file.
func (s *Server) archive(w http.ResponseWriter, r *http.Request) {
	p, err := s.asked(r)
	dir := filepath.Join(s.dir(p), "actor")
	if err == nil {
		err = checkpoint.VerifyModel(dir)
	}
	if err != nil {
		serve.Fail(w, err)
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
