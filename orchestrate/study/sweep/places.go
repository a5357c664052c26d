package sweep

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"gyre/internal/settings"
)

// Dir is the study's folder.
func (s *Study) Dir() string { return filepath.Join(s.Output, s.Name, s.beside) }

// Kind is how a study is run.
type Kind string

const (
	Sweeps   Kind = "sweep"  // every condition
	Searches Kind = "search" // by successive halving over the axes
)

// begin chooses the folder: OUTPUT/NAME, or if a study of the other kind is there, one in it, so that a file can be
// swept and searched. It gives what is known there.
func (s *Study) begin(k Kind) (*state, error) {
	s.beside = ""
	st, err := openState(s)
	if err == nil && len(st.Runs) > 0 && cmp.Or(st.Kind, Sweeps) != k { // sweeps did not say what they are at first
		s.beside = string(k)
		return openState(s)
	}
	return st, err
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

func (s *Study) title() string { return cmp.Or(s.Title, s.Name) }

// slot is a place for one run at a time.
type slot struct {
	devices []string
	threads int
	label   string // what the devices are
}

// deal shares devices and threads among the slots.
func (s *Study) deal() ([]slot, error) {
	each, have := max(s.DevicesPerRun, 1), len(s.Devices)
	n := max(cmp.Or(s.Slots, have/each), 1)
	switch {
	case have == 0:
	case have < each:
		return nil, fmt.Errorf("%w: a run needs %d devices, and there are %d", settings.ErrInvalid, each, have)
	case n*each > have:
		return nil, fmt.Errorf("%w: %d slots of %d devices need %d, and there are %d", settings.ErrInvalid, n, each,
			n*each, have)
	}
	threads := cmp.Or(s.ThreadsPerRun, max(1, runtime.NumCPU()/n))
	if s.SharedBase { // they take turns with all threads
		n, threads = cmp.Or(s.Slots, s.most()), cmp.Or(s.ThreadsPerRun, runtime.NumCPU())
	}
	out := make([]slot, n)
	for i := range out {
		out[i].threads = threads
		if have > 0 {
			out[i].devices = s.Devices[i*each : (i+1)*each]
		}
	}
	return out, nil
}

var (
	gpuLine    = regexp.MustCompile(`(?m)^GPU (\d+): (.*?)(?: \(UUID.*)?$`)
	gpuModel   = regexp.MustCompile(`\b([BHAL]\d{2,3}S?|V100|T4|P100|K80)\b`)
	gpuVendors = regexp.MustCompile(`^((NVIDIA|Tesla|GeForce|Quadro) )+`)
)

// deviceLabels says what each slot computes on, such as 4xH100, 2xmixed, 1xGPU3 where nvidia-smi does not know it, or
// 1xCPU.
func deviceLabels(ctx context.Context, slots []slot) []string {
	names := map[string]string{}
	if len(slots[0].devices) > 0 {
		listed, _ := exec.CommandContext(ctx, "nvidia-smi", "-L").Output() // without it devices keep their numbers
		for _, m := range gpuLine.FindAllStringSubmatch(string(listed), -1) {
			names[m[1]] = gpuName(m[2])
		}
	}
	labels := make([]string, len(slots))
	for i, place := range slots {
		var models []string
		for _, id := range place.devices {
			name, ok := names[id]
			if !ok {
				name = "GPU" + id
			}
			models = append(models, name)
		}
		different := slices.Compact(slices.Sorted(slices.Values(models)))
		switch len(different) {
		case 0:
			labels[i] = "1xCPU"
		case 1:
			labels[i] = fmt.Sprintf("%dx%s", len(models), different[0])
		default:
			labels[i] = fmt.Sprintf("%dxmixed", len(models))
		}
	}
	return labels
}

// gpuName shortens what nvidia-smi calls a device.
func gpuName(name string) string {
	if model := gpuModel.FindString(name); model != "" {
		return model
	}
	first, _, _ := strings.Cut(gpuVendors.ReplaceAllString(name, ""), " ")
	return first
}
