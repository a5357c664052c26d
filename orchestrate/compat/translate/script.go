package translate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// script interprets a shell script without running programs: what would start one is written down. Variables, defaults,
// conditions, loops and functions are those of bash. Nothing is written, and only files that it sources are read.
type script struct {
	mu       sync.Mutex // guards the fields below: background commands run beside others
	trainers [][]string // commands that train, in words
	skipped  []string   // other programs whose output would matter
	unset    []string   // variables that have neither a value nor a default
}

// scriptTime is how long a script may take, which can wait for a server that nobody has started.
const scriptTime = 5 * time.Second

// scriptWords are the words of the first training command of a script with arguments, and what is to be known of it.
func scriptWords(path string, arguments []string) (words, notes []string, err error) {
	s := &script{}
	ctx, cancel := context.WithTimeout(context.Background(), scriptTime)
	defer cancel()
	failed := s.run(ctx, path, arguments)
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.skipped) // both sides of a pipe run at once
	base := filepath.Base(path)
	for _, name := range s.unset {
		notes = append(notes, fmt.Sprintf("%s: $%s is not set and has no default: its place is empty", base, name))
	}
	for _, command := range s.skipped {
		notes = append(notes, fmt.Sprintf("%s: not run, its output is taken for empty: %s", base, command))
	}
	if failed != nil {
		notes = append(notes, fmt.Sprintf("%s: read up to an error: %v", base, failed))
	}
	if len(s.trainers) == 0 {
		return nil, notes, fmt.Errorf("%s starts neither train.py, train.sh nor python -m with a trainer of verl: expected one "+
			"of them\n%s", path, strings.Join(notes, "\n"))
	}
	if n := len(s.trainers); n > 1 {
		notes = append(notes, fmt.Sprintf("%s starts %d trainings: this is the first", base, n))
	}
	return s.trainers[0], notes, nil
}

func (s *script) run(ctx context.Context, path string, arguments []string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	file, err := syntax.NewParser().Parse(bytes.NewReader(text), path)
	if err != nil {
		return err
	}
	read, set := tolerant(file)
	s.lacking(read, set, len(arguments))
	runner, err := interp.New(interp.StdIO(nil, io.Discard, io.Discard),
		interp.Params(append([]string{"--"}, arguments...)...), interp.CallHandler(goOn),
		interp.OpenHandler(openForReading),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.start }))
	if err == nil {
		err = runner.Run(ctx, file)
	}
	return err
}

// tolerant has a script go on where a value is missing, and its commands come one after another. read are the variables
// that are read without a default, set those that the script sets.
func tolerant(file *syntax.File) (read, set map[string]bool) {
	read, set = map[string]bool{}, map[string]bool{}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.Stmt:
			n.Background = false
		case *syntax.Assign:
			if n.Name != nil {
				set[n.Name.Value] = true
			}
		case *syntax.WordIter:
			set[n.Name.Value] = true
		case *syntax.ParamExp:
			if n.Exp != nil && (n.Exp.Op == syntax.ErrorUnset || n.Exp.Op == syntax.ErrorUnsetOrNull) {
				n.Exp = nil
			}
			if n.Exp == nil && n.Param != nil && !n.Length {
				read[n.Param.Value] = true
			}
		}
		return true
	})
	return read, set
}

var named = regexp.MustCompile(`^([A-Za-z_]\w*|[1-9])$`)

// lacking notes the variables that have no value: neither the script's nor the environment's, nor that of an argument.
func (s *script) lacking(read, set map[string]bool, arguments int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(read)) {
		_, known := os.LookupEnv(name)
		if place, err := strconv.Atoi(name); err == nil {
			known = place <= arguments
		}
		if !known && !set[name] && named.MatchString(name) {
			s.unset = append(s.unset, name)
		}
	}
}

// goOn stays in the working directory, in which our configurations lie, whatever folder the script goes to, and passes
// over what would end it.
func goOn(_ context.Context, words []string) ([]string, error) {
	option := append(words, "", "")[1]
	if words[0] == "cd" || words[0] == "exit" && option != "0" ||
		words[0] == "set" && strings.HasPrefix(option, "-") && option != "--" {
		return []string{"true"}, nil
	}
	return words, nil
}

// openForReading lets a script source others.
func openForReading(ctx context.Context, path string, flag int, perm os.FileMode) (io.ReadWriteCloser, error) {
	if flag != os.O_RDONLY {
		return os.OpenFile(os.DevNull, os.O_RDWR, 0)
	}
	return interp.DefaultOpenHandler()(ctx, path, flag, perm)
}

// start takes the place of starting a program.
func (s *script) start(ctx context.Context, words []string) error {
	out := interp.HandlerCtx(ctx).Stdout
	base := filepath.Base(words[0])
	switch {
	case (base == "bash" || base == "sh") && len(words) > 1 && isScript(words[1]):
		return s.run(ctx, words[1], words[2:])
	case base == "basename" && len(words) == 2:
		_, err := fmt.Fprintln(out, filepath.Base(words[1]))
		return err
	case base == "dirname" && len(words) == 2:
		_, err := fmt.Fprintln(out, filepath.Dir(words[1]))
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if command := trainingWords(words); command != nil {
		s.trainers = append(s.trainers, command)
	} else if line := strings.Join(words, " "); out != io.Discard && !slices.Contains(s.skipped, line) {
		s.skipped = append(s.skipped, line)
	}
	return nil
}

// trainingWords are the words of a command that trains, from its program on; nil of another.
func trainingWords(words []string) []string {
	for i, word := range words {
		_, module := modules[word]
		switch {
		case i > 0 && words[i-1] == "-m" && (module || strings.HasPrefix(word, "verl.") || strings.HasPrefix(word, "recipe.")):
			return words[i-1:]
		case filepath.Base(word) == "train.py":
			return words[i+1:]
		case filepath.Base(word) == "train.sh" && i+1 < len(words):
			if _, known := trainShEnvs[words[i+1]]; known {
				return append([]string{"--train-sh"}, words[i+1:]...)
			}
		}
	}
	return nil
}

// isScript reports whether a word names a shell script that is here.
func isScript(word string) bool {
	info, err := os.Stat(word)
	return strings.HasSuffix(word, ".sh") && err == nil && info.Mode().IsRegular()
}

// expandScript puts the words of a script's training command in place of the script and its arguments.
func (t *translation) expandScript(words []string) ([]string, error) {
	i := slices.IndexFunc(words, isScript)
	if i < 0 || slices.ContainsFunc(words[:i], func(w string) bool { return strings.Contains(w, "=") }) {
		return words, nil
	}
	if command := trainingWords(words[max(i-1, 0):]); command != nil { // train.sh, which is given its words here
		return command, nil
	}
	found, notes, err := scriptWords(words[i], words[i+1:])
	t.notes = append(t.notes, notes...)
	return found, err
}
