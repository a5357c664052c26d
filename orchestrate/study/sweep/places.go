package sweep

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Dir is the study's folder.
func (s *Study) Dir() string { return filepath.Join(s.Output, s.Name, s.beside) }

// kind of what has begun in a folder.
type kind string

const (
	sweeps   kind = "sweep"
	searches kind = "search"
)

// begin chooses the folder: OUTPUT/NAME, or if a study of the other kind is there, one in it, so that a file can be
// swept and searched.
func (s *Study) begin(k kind) error {
	s.beside = ""
	st, err := openState(s)
	if err != nil {
		return err
	}
	if len(st.Runs) > 0 && cmp.Or(st.Kind, sweeps) != k { // sweeps did not say what they are at first
		s.beside = string(k)
	}
	return nil
}

// runDir is where a run lies, logFile where it says what it does.
func (s *Study) runDir(c Condition, seed int) string {
	return s.place(s.Runs, "runs", c, seed)
}

func (s *Study) logFile(c Condition, seed int) string {
	return s.place(strings.TrimSuffix(s.Logs, ".log"), "logs", c, seed) + ".log"
}

// place fills in a path; without {seed} in it, it is that of the first seed, and others have theirs added.
func (s *Study) place(path, folder string, c Condition, seed int) string {
	switch {
	case path == "":
		path = filepath.Join(s.Dir(), folder)
	case s.beside != "" && strings.Contains(path, "{condition}"):
		path = strings.Replace(path, "{condition}", s.beside+"/{condition}", 1)
	case s.beside != "":
		path = filepath.Join(path, s.beside)
	}
	if !strings.Contains(path, "{condition}") {
		path = filepath.Join(path, "{condition}", "seed_{seed}")
	}
	if !strings.Contains(path, "{seed}") && seed > 1 {
		path += "_seed_{seed}"
	}
	return filepath.Clean(strings.NewReplacer("{condition}", c.Folder(), "{seed}", fmt.Sprint(seed)).Replace(path))
}

// summaryLog is the summary as text; the lines in it appear as runs end.
func (s *Study) summaryLog() string {
	switch {
	case s.SummaryLog == "":
		return filepath.Join(s.Dir(), "summary.log")
	case s.beside != "":
		return strings.TrimSuffix(s.SummaryLog, ".log") + "_" + s.beside + ".log"
	}
	return s.SummaryLog
}

// separator is between what a line of the summary log says.
const separator = " | "

// exists tells whether a path is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *Study) title() string { return cmp.Or(s.Title, s.Name) }
