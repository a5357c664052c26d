package tasks

import (
	_ "embed"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing/fstest"

	"gyre/envs"
	"gyre/internal/nearest"
)

// made is a task that a family has made.
type made struct {
	instruction string
	files       map[string]string // in /app
	modes       map[string]fs.FileMode
	tests       string // functions of check.py
	solution    string // a line or two of shell
}

// families make tasks: names, numbers and bugs come from the seed.
var families = map[string]func(dice) made{
	"fix_operator": fixOperator, "fix_loop": fixLoop, "rename_function": renameFunction, "fix_makefile": fixMakefile,
	"fix_script": fixScript, "write_script": writeScript, "write_regex": writeRegex, "query_sqlite": querySQLite,
	"sum_csv": sumCSV, "count_log": countLog, "set_json": setJSON, "swap_columns": swapColumns,
	"unique_words": uniqueWords, "replace_text": replaceText, "rename_files": renameFiles, "find_file": findFile,
	"largest_file": largestFile, "make_folders": makeFolders, "decode_text": decodeText, "checksum": checksum,
}

// dice are the random choices of a task.
type dice struct{ *rand.Rand }

func (d dice) of(list ...string) string { return list[d.IntN(len(list))] }

// number is one from low to high.
func (d dice) number(low, high int) int { return low + d.IntN(high-low+1) }

var words = strings.Fields("amber birch cedar delta ember fjord grove haven inlet jade kelp lotus maple nectar olive " +
	"pearl quartz river slate tulip umber violet willow yarrow zephyr basil coral dune fern garnet")

func (d dice) word() string { return d.of(words...) }

// some are different words.
func (d dice) some(n int) []string {
	list := make([]string, n)
	for i, at := range d.Perm(len(words))[:n] {
		list[i] = words[at]
	}
	return list
}

//go:embed check.py
var checks string

// generated gives the tasks of families: seed after seed another family, and in each the task of the seed.
func generated(names []string) (source, error) {
	known := slices.Sorted(maps.Keys(families))
	for _, name := range names {
		if families[name] == nil {
			return nil, fmt.Errorf("option families: no family %q%s; there is %s", name, nearest.Hint(name, known),
				strings.Join(known, ", "))
		}
	}
	if len(names) == 0 {
		names = known
	}
	return func(seed int64) (*Task, error) {
		name := envs.At(names, seed)
		return Read(folder(families[name](dice{envs.Rand("tasks "+name, seed)})), name)
	}, nil
}

// folder is a made task as a folder in Harbor's layout.
func folder(m made) fs.FS {
	files := fstest.MapFS{}
	put := func(name, text string, mode fs.FileMode) {
		files[name] = &fstest.MapFile{Data: []byte(text), Mode: mode}
	}
	put("task.toml", "version = \"1.0\"\n\n[verifier]\ntimeout_sec = 60.0\n\n[agent]\ntimeout_sec = 120.0\n", 0o644)
	put("instruction.md", m.instruction+"\n", 0o644)
	put("environment/Dockerfile", "FROM python:3.12-slim\nWORKDIR /app\nCOPY files/ /app/\n", 0o644)
	put("environment/files/.keep", "", 0o644)
	for name, text := range m.files {
		mode := m.modes[name]
		if mode == 0 {
			mode = 0o644
		}
		put("environment/files/"+name, text, mode)
	}
	put("tests/test.sh", "#!/bin/sh\nexec python3 -I /tests/check.py\n", 0o755)
	put("tests/check.py", strings.Replace(checks, "#TESTS#", m.tests, 1), 0o644)
	put("solution/solve.sh", "#!/bin/bash\n"+m.solution+"\n", 0o755)
	return files
}

// lines are texts, each with its end.
func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }

// says is a test that a file of one line says what it should.
func says(file string, want any) string {
	return fmt.Sprintf("def test_answer():\n    same(read(%q).strip(), %q)\n", file, fmt.Sprint(want))
}
