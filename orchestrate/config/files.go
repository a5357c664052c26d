package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Files are the files of the user that the configuration names, with their SHA-256: data, the programs that play, judge
// or log, and the chat template. A Python file brings those that it imports from its own folder. A model's folder is
// none of them. A file that cannot be read is left out: whoever needs it says so.
func (c *Config) Files() map[string]string {
	words := []any{c.Model.ChatTemplate, c.SFT.Data}
	for _, e := range slices.Concat(c.Envs, c.Validation.Envs) {
		words = append(words, e.Options)
	}
	for _, r := range c.Rewards {
		words = append(words, r.Options)
	}
	for _, l := range c.Run.Loggers {
		words = append(words, l.Command)
	}
	found := map[string]string{}
	for _, w := range words {
		eachName(w, func(name string) { addFile(name, found) })
	}
	return found
}

// Named are those of a run's files that the environment's options name.
func (e Env) Named(files map[string]string) map[string]string {
	named := map[string]string{}
	eachName(e.Options, func(name string) {
		if digest, is := files[filepath.Clean(name)]; is {
			named[filepath.Clean(name)] = digest
		}
	})
	return named
}

// eachName visits what may be the name of a file in a value: itself, the words of a command, and the module of
// module:function.
func eachName(value any, visit func(name string)) {
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			eachName(inner, visit)
		}
	case []any:
		for _, inner := range v {
			eachName(inner, visit)
		}
	case []string:
		for _, inner := range v {
			eachName(inner, visit)
		}
	case string:
		words := strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(" \t\n'\"=;&|<>", r) })
		for _, word := range append(words, v) {
			module, _, _ := strings.Cut(word, ":")
			visit(word)
			visit(modulePath("", module))
		}
	}
}

// modulePath is the file of a Python module that is imported from a folder.
func modulePath(folder, module string) string {
	return filepath.Join(folder, strings.ReplaceAll(module, ".", "/")+".py")
}

var (
	imports    = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+(.+)$`)
	moduleName = regexp.MustCompile(`[\w.]+`)
)

func addFile(name string, found map[string]string) {
	name = filepath.Clean(name)
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || found[name] != "" {
		return
	}
	file, err := os.Open(name)
	if err != nil {
		return
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return
	}
	found[name] = fmt.Sprintf("%x", digest.Sum(nil))
	if filepath.Ext(name) != ".py" {
		return
	}
	text, _ := os.ReadFile(name) // it was read just now
	for _, line := range imports.FindAllSubmatch(text, -1) {
		for _, module := range moduleName.FindAllString(string(line[1]), -1) {
			addFile(modulePath(filepath.Dir(name), strings.Trim(module, ".")), found)
		}
	}
}
