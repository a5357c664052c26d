package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gyre/internal/atomicfile"
)

// Baseline is what a kind of machine is expected to reach. Figures are shares of the least time, so that they hold for machines of
// the kind that run a little faster or slower.
type Baseline struct {
	Date    string                  `json:"date"`
	CPU     string                  `json:"cpu"`
	Threads int                     `json:"threads"`
	Cases   map[string]BaselineCase `json:"cases"`
}

// BaselineCase holds Gyre's shares and peak bytes of memory, one for every repeat, and the median ratio of its speed to that of each peer. A
// case in another type than float32 is called "generate/1 in bf16".
type BaselineCase struct {
	Shares []float64          `json:"shares"`
	Peaks  []float64          `json:"peak_bytes,omitempty"`
	Ratios map[string]float64 `json:"ratios,omitempty"`
}

// CaseIn names a case in a type.
func CaseIn(name, dtype string) string {
	if dtype == Float32 {
		return name
	}
	return name + " in " + dtype
}

// NewBaseline takes what a report says.
func NewBaseline(r *Report) Baseline {
	b := Baseline{Date: r.Date, CPU: r.CPU, Threads: r.Threads, Cases: map[string]BaselineCase{}}
	for _, c := range r.Cases {
		for _, dtype := range Types(Subject) {
			own := c.Samples[In(Subject, dtype)]
			if len(own) == 0 {
				continue
			}
			entry := BaselineCase{Shares: r.Shares(c.Name, dtype), Peaks: r.Peaks(c.Name, dtype), Ratios: map[string]float64{}}
			for name, samples := range c.Samples {
				if Base(name) != Subject && len(samples) > 0 {
					entry.Ratios[name] = Ratio(own, samples, Sample.Speed).Median
				}
			}
			b.Cases[CaseIn(c.Name, dtype)] = entry
		}
	}
	return b
}

var notSlug = regexp.MustCompile(`[^a-z0-9.]+`)

// BaselinePath names the file of a kind of machine: its processor and the number of threads.
func BaselinePath(folder, cpu string, threads int) string {
	name := strings.NewReplacer("(r)", "", "(tm)", "", "processor", "", "cpu", "").Replace(strings.ToLower(cpu))
	name = strings.Trim(notSlug.ReplaceAllString(name, "-"), "-")
	return filepath.Join(folder, fmt.Sprintf("%s-%d-threads.json", name, threads))
}

// ReadBaseline reads a file. An error that matches fs.ErrNotExist says how to make one.
func ReadBaseline(path string) (Baseline, error) {
	var b Baseline
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, fmt.Errorf("this kind of machine has no baseline: run `make bench BENCH=--write-baseline` on a state that is known to be "+
			"good and commit the file: %w", err)
	}
	if err != nil {
		return b, err
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Write replaces the file.
func (b Baseline) Write(path string) error {
	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
