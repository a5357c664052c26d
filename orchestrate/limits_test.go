package orchestrate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Limits of Go code, tests apart.
const (
	fileLines     = 500
	functionLines = 60 // which longFunctions may exceed, up to mostLines
	longFunctions = 8
	mostLines     = 75
	parameters    = 6
)

// A file, a function and a list of parameters are short enough to be read at once.
func TestLimits(t *testing.T) {
	var long []string
	for path, text := range sources(t) {
		if filepath.Ext(path) != ".go" || isTest(path) {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text, "\n"); n > fileLines {
			t.Errorf("%s has %d lines, expected at most %d", path, n, fileLines)
		}
		for _, declared := range file.Decls {
			f, ok := declared.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1
			if lines > mostLines {
				t.Errorf("%s: %s has %d lines, expected at most %d", path, f.Name.Name, lines, mostLines)
			}
			if lines > functionLines {
				long = append(long, path+": "+f.Name.Name)
			}
			if n := f.Type.Params.NumFields(); n > parameters {
				t.Errorf("%s: %s has %d parameters, expected at most %d", path, f.Name.Name, n, parameters)
			}
		}
	}
	if len(long) > longFunctions {
		t.Errorf("%d functions have more than %d lines, expected at most %d: %q", len(long), functionLines,
			longFunctions, long)
	}
}

// A mutex says what it guards, and a go statement says, on its line or above it, what ends the goroutine.
func TestConcurrencySaysSo(t *testing.T) {
	mutex := regexp.MustCompile(`^\s*(var )?\w+\s+sync\.(RW)?Mutex\b`)
	statement := regexp.MustCompile(`^\s*go (func\(|[\w.]+\()`)
	for path, text := range sources(t) {
		if filepath.Ext(path) != ".go" || isTest(path) {
			continue
		}
		above := ""
		for i, line := range strings.Split(text, "\n") {
			if mutex.MatchString(line) && !strings.Contains(line, "// guards ") {
				t.Errorf("%s:%d: what does this mutex guard?", path, i+1)
			}
			if statement.MatchString(line) && !strings.Contains(line+above, "//") {
				t.Errorf("%s:%d: what ends this goroutine?", path, i+1)
			}
			above = line
		}
	}
}
