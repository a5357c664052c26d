// Package sweep runs studies: one experiment under several conditions, each with the same seeds, and says what
// differs and how sure that is.
//
//	STUDY.toml ──▶ Study ──▶ conditions × seeds ──▶ slots (process.go, shared.go) ──▶ summary, figures
//	                                 │                        │
//	                                 └────── state.json ◀─────┘
//
// A study's folder holds everything:
//
//	studies/<name>/state.json                      what is planned, running, done; written after every change
//	               runs/<condition>/seed_<n>/      run directories, as `gyre train` leaves them
//	               logs/<condition>/seed_<n>.log   what the runs said
//	               summary.{csv,json,log}, figures/
//
// Killed at any moment, a study goes on with what is missing: finished runs are not repeated, and a run that was
// under way continues from its newest checkpoint, or starts again, to the same numbers. A run that a collapse rule
// stopped is a result, of a training regime that failed; a run that cannot be finished is tried once more, reported,
// and stops nothing else.
package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/settings"
	"gyre/orchestrate/config"
)

// Study is a study's file: what to vary, from which experiment on, with how many seeds.
type Study struct {
	Name string `toml:"name"`
	// Base is the experiment's configuration, relative to the study's file.
	Base string `toml:"base"`
	// Output is the folder of studies; Name is made in it.
	Output string `toml:"output" default:"studies"`
	// Set are key=value overrides of every run, before those of its condition.
	Set []string `toml:"set"`
	// Override are those of the command line: they come after the condition's.
	Override []string `toml:"-"`
	// Seeds is the number of runs per condition. Seed n of every condition draws the same environments and random
	// numbers.
	Seeds int `toml:"seeds" default:"3" range:"[1,)"`
	// Slots run at a time; 1 by default, or as many as Devices give.
	Slots int `toml:"slots" range:"[0,)"`
	// Devices are GPUs, dealt out to the slots, DevicesPerRun each.
	Devices       []string `toml:"devices"`
	DevicesPerRun int      `toml:"devices_per_run" range:"[0,)"`
	// ThreadsPerRun of the kernels; 0 shares the cores among the slots.
	ThreadsPerRun int `toml:"threads_per_run" range:"[0,)"`
	// SharedBase runs the conditions in one process, beside one base model, and lets them sample together: for those
	// that differ in adapters, losses, rewards or seeds only. All of them run at a time where Slots is 0.
	SharedBase bool `toml:"shared_base"`
	// Retries of a run that failed.
	Retries int `toml:"retries" default:"1" range:"[0,)"`
	// BudgetHours, once spent by the runs together, lets no further run start; 0 = none.
	BudgetHours float64 `toml:"budget_hours" range:"[0,)"`
	// Baseline is the condition that others are compared with; the first when empty.
	Baseline string `toml:"baseline"`
	// Objective is the metric that says which condition is best, by its last value; by default the mean of the last
	// validations' success.
	Objective string `toml:"objective"`
	// Runs and Logs are where runs lie and where they say what they do: folders, or paths with {condition} and {seed}
	// in them. SummaryLog is the file of the summary as text. All are in the study's folder when empty.
	Runs       string `toml:"runs"`
	Logs       string `toml:"logs"`
	SummaryLog string `toml:"summary_log"`
	// Title and Header begin the summary log; the study's name, and what is run, when empty.
	Title  string   `toml:"title"`
	Header []string `toml:"header"`

	Axes       []Axis          `toml:"-"`
	Conditions []ConditionSpec `toml:"-"`
	Search     Halving         `toml:"-"`

	// OnlyStage, if not 0, is the stage that is run alone, from Start or the best condition of the stage before.
	OnlyStage int      `toml:"-"`
	Start     []string `toml:"-"`

	file   string
	beside string // the folder in the study's, where that is of another kind; see begin
}

// Axis varies one key. Axes make a grid, but those with the same Zip change together, and those of a later Stage
// start from the best condition of the stage before.
type Axis struct {
	Key    string `toml:"key"`
	Values []any  `toml:"values"`
	// Labels stand for the values in names and folders, Lines in the lines of the summary log; the values' own texts
	// when empty.
	Labels []string `toml:"labels"`
	Lines  []string `toml:"lines"`
	// Named are values that stand for several overrides: nofilter = ["filter.value=1", "filter.include_zero=true"].
	Named map[string][]string `toml:"named"`
	// Name stands for the key in the names of conditions; the last part of the key when empty.
	Name  string `toml:"name"`
	Zip   string `toml:"zip"`
	Stage int    `toml:"stage" range:"[0,)"`
}

// ConditionSpec is a condition that is written out.
type ConditionSpec struct {
	Label string   `toml:"label"` // At's when empty
	Set   []string `toml:"set"`
	// At are its values on axes, as name=value, for names and figures.
	At    []string `toml:"at"`
	Stage int      `toml:"stage" range:"[0,)"`
}

// document is a study's file.
type document struct {
	Study      Study           `toml:"study"`
	Axes       []Axis          `toml:"axes"`
	Conditions []ConditionSpec `toml:"conditions"`
	Search     Halving         `toml:"search"`
}

// Load reads a study's file with overrides such as study.seeds=5, axes.0.values=[1, 2] or search.reduction=2. The
// error names what is wrong with them, all at once.
func Load(path string, overrides ...string) (*Study, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, settings.Unreadable(path, err)
	}
	file := settings.Parse(path, data)
	if err := file.Err(); err != nil {
		return nil, err
	}
	for _, text := range overrides {
		file.Override(text)
	}
	var d document
	file.Decode(&d)
	s := &d.Study
	s.Axes, s.Conditions, s.Search, s.file = d.Axes, d.Conditions, d.Search, path
	s.check(file.Report)
	if err := file.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Changes reports whether a key=value belongs to the study's file and not to the experiment.
func Changes(word string) bool {
	table, _, _ := strings.Cut(word, ".")
	return table == "study" || table == "axes" || table == "conditions" || table == "search"
}

// Values are the overrides that replace the values of the first axis (names of it, or TOML values) and their labels,
// which may be none.
func Values(list, labels []string) []string {
	values, names := make([]string, len(list)), make([]string, len(labels))
	for i, text := range list {
		if values[i] = text; settings.Value(text) == any(text) {
			values[i] = strconv.Quote(text)
		}
	}
	for i, label := range labels {
		names[i] = strconv.Quote(label)
	}
	return []string{"axes.0.values=[" + strings.Join(values, ", ") + "]",
		"axes.0.labels=[" + strings.Join(names, ", ") + "]", "axes.0.lines=[]"}
}

// check reports what does not go together. Single values are checked while decoding.
func (s *Study) check(report func(key, format string, args ...any)) {
	complain := func(bad bool, key, format string, args ...any) {
		if bad {
			report(key, format, args...)
		}
	}
	complain(s.Name == "" || unsafeInPaths.MatchString(s.Name), "study.name",
		"is %q, expected letters, digits and ._=,+-", s.Name)
	complain(s.Base == "", "study.base", "missing: the experiment's configuration")
	for key, path := range map[string]string{"study.runs": s.Runs, "study.logs": s.Logs} {
		complain(strings.Contains(path, "{") && !strings.Contains(path, "{condition}"), key,
			"is %q, expected a folder or a path with {condition} in it", path)
	}
	complain(len(s.Axes)+len(s.Conditions) == 0, "axes", "nothing is varied: expected [[axes]] or [[conditions]]")
	complain(s.SharedBase && len(s.Devices) > 0, "study.shared_base",
		"is for one process, which computes where model.device says: leave out study.devices (--gpus)")
	for i, a := range s.Axes {
		at := fmt.Sprintf("axes.%d", i)
		complain(a.Key == "" || len(a.Values) == 0, at, "needs key and values")
		complain(len(a.Labels) > 0 && len(a.Labels) != len(a.Values), at+".labels", "%d labels for %d values",
			len(a.Labels), len(a.Values))
		complain(len(a.Lines) > 0 && len(a.Lines) != len(a.Values), at+".lines", "%d lines for %d values",
			len(a.Lines), len(a.Values))
		for _, other := range s.Axes[:i] {
			complain(a.Zip != "" && other.Zip == a.Zip && (len(other.Values) != len(a.Values) ||
				other.Stage != a.Stage), at+".zip",
				"axes %s and %s change together (zip = %q) and need equally many values in one stage", other.Key, a.Key,
				a.Zip)
		}
	}
	for i, c := range s.Conditions {
		at := fmt.Sprintf("conditions.%d", i)
		complain(c.Label == "" && len(c.At) == 0, at, "needs a label")
		for _, value := range c.At {
			complain(!strings.Contains(value, "="), at+".at", "has %q, expected name=value", value)
		}
	}
}

// BasePath is where the base configuration lies.
func (s *Study) BasePath() string {
	if filepath.IsAbs(s.Base) {
		return s.Base
	}
	return filepath.Join(filepath.Dir(s.file), s.Base)
}

// base is the experiment as every run has it: without what all of them change where that holds only with a
// condition's own changes.
func (s *Study) base() (*config.Config, error) {
	if c, err := config.Load(s.BasePath(), slices.Concat(s.Set, s.Override)); err == nil {
		return c, nil
	}
	return config.Load(s.BasePath(), nil)
}
