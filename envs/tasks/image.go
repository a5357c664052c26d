package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// noImages ends what is said of tasks that need an image.
const noImages = "which Gyre does not run: its tasks play in the sandbox, with the programs of this machine"

// plain are the images that hold no more than a system or Python: programs of this machine take their place.
var plain = regexp.MustCompile(`^((docker\.io/)?(library/)?(ubuntu|debian|python|alpine|bash|busybox)|` +
	`ghcr\.io/laude-institute/t-bench/(ubuntu|python)-[\d-]+)(:[\w.-]+)?(@sha256:[0-9a-f]+)?$`)

// prepare gives a task the files of its Dockerfile, if this is one that only names a plain base and copies files.
func prepare(folder fs.FS, t *Task, image string) error {
	if image != "" && !plain.MatchString(image) {
		return fmt.Errorf("the task needs the image %s, %s", image, noImages)
	}
	content, err := fs.ReadFile(folder, "Dockerfile")
	if errors.Is(err, fs.ErrNotExist) && image != "" {
		return nil
	}
	if err != nil {
		return err
	}
	for _, line := range instructions(string(content)) {
		if err := line.apply(folder, t); err != nil {
			return fmt.Errorf("the Dockerfile, line %d: %w", line.number, err)
		}
	}
	return nil
}

// instruction is a line of a Dockerfile with its continuations.
type instruction struct {
	number int
	words  []string
}

func instructions(text string) (all []instruction) {
	open := false
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		rest, continued := strings.CutSuffix(line, `\`)
		if !open {
			all = append(all, instruction{number: i + 1})
		}
		last := &all[len(all)-1]
		last.words = append(last.words, strings.Fields(rest)...)
		open = continued
	}
	return all
}

// apply does to the task what an instruction does to an image.
func (in instruction) apply(folder fs.FS, t *Task) error {
	name, words := strings.ToUpper(in.words[0]), in.words[1:]
	all := strings.Join(words, " ")
	refuse := func(why string) error { return fmt.Errorf("%s %s: %s, %s", name, all, why, noImages) }
	switch name {
	case "LABEL", "MAINTAINER", "CMD", "ENTRYPOINT", "EXPOSE", "STOPSIGNAL":
		return nil // of the container as a service
	}
	if strings.ContainsAny(all, "$\"'[") || len(words) == 0 {
		return refuse("quotes and variables need a builder of images")
	}
	switch {
	case name == "FROM" && len(words) == 1 && plain.MatchString(words[0]):
	case name == "USER" && all == "root":
	case name == "WORKDIR" && len(words) == 1:
		t.Folder = absolute(t, words[0])
	case name == "ENV" && strings.Contains(words[0], "="):
		for _, word := range words {
			key, value, _ := strings.Cut(word, "=")
			t.Env[key] = value
		}
	case name == "ENV" && len(words) == 2:
		t.Env[words[0]] = words[1]
	case (name == "COPY" || name == "ADD") && len(words) > 1 && !strings.HasPrefix(all, "--") &&
		!strings.Contains(all, "://") && !(name == "ADD" && archive.MatchString(all)):
		return copyFiles(folder, t, words)
	case name == "FROM":
		return refuse("it is no plain base image")
	default:
		return refuse("it does more than name a plain base and copy files")
	}
	return nil
}

var archive = regexp.MustCompile(`\.(tar|tgz|tar\.\w+)\b`)

func absolute(t *Task, place string) string {
	if path.IsAbs(place) {
		return path.Clean(place)
	}
	return path.Join(t.Folder, place)
}

// copyFiles copies the files that the words before the last name.
func copyFiles(folder fs.FS, t *Task, words []string) error {
	last := words[len(words)-1]
	target := absolute(t, last)
	var sources []string
	for _, pattern := range words[:len(words)-1] {
		found, err := fs.Glob(folder, strings.TrimPrefix(path.Clean("/"+pattern), "/"))
		if path.Clean("/"+pattern) == "/" {
			found = []string{"."}
		}
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%s, which is to be copied: no such file", pattern)
		}
		sources = append(sources, found...)
	}
	into := len(sources) > 1 || strings.HasSuffix(last, "/") || last == "." || target == t.Folder
	for _, name := range sources {
		info, err := fs.Stat(folder, name)
		if err != nil {
			return err
		}
		if info.IsDir() { // its content
			files, err := filesIn(folder, name, target)
			if err != nil {
				return err
			}
			t.Files = append(t.Files, files...)
			continue
		}
		place := target
		if into {
			place = path.Join(target, path.Base(name))
		}
		file, err := fileOf(folder, name, place)
		if err != nil {
			return err
		}
		t.Files = append(t.Files, file)
	}
	return nil
}
