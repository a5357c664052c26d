package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/statistics"
)

// Baseline is what a kind of machine is expected to reach. Figures are shares of the least time, so that they hold for
// machines of the kind that run a little faster or slower.
type Baseline struct {
	Date    string                  `json:"date"`
	CPU     string                  `json:"cpu"`
	Threads int                     `json:"threads"`
	Cases   map[string]BaselineCase `json:"cases"`
}

// BaselineCase holds Gyre's shares and peak bytes of memory, one for every repeat. A case in another type than float32
// is called "generate/1 in bf16".
type BaselineCase struct {
	Shares []float64 `json:"shares"`
	Peaks  []float64 `json:"peak_bytes,omitempty"`
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
			if shares := r.Own(c.Name, dtype, Sample.share); c.InCheck() && len(shares) > 0 {
				b.Cases[CaseIn(c.Name, dtype)] = BaselineCase{shares, r.Own(c.Name, dtype, Sample.peak)}
			}
		}
	}
	return b
}

// Check compares a case in a type with this baseline: in words, whether it is slower, and whether it takes more
// memory. known is false where the baseline lacks the case.
func (b Baseline) Check(r *Report, name, dtype string) (text string, verdict Verdict, larger, known bool) {
	expected, known := b.Cases[CaseIn(name, dtype)]
	if !known {
		return "", Fine, false, false
	}
	comparison, err := Decide(expected.Shares, r.Own(name, dtype, Sample.share))
	if err != nil {
		return err.Error(), Regression, false, true
	}
	memory, fine := CompareMemory(expected.Peaks, r.Own(name, dtype, Sample.peak))
	return fmt.Sprintf("%s; %s", comparison, memory), comparison.Verdict, !fine, true
}

var notSlug = regexp.MustCompile(`[^a-z0-9.]+`)

// BaselinePath names the file of a kind of machine: its processor with the kernels' instructions, and the number of
// threads.
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
		return b, fmt.Errorf("this kind of machine has no baseline: run `make bench BENCH=--write-baseline` on a "+
			"state that is known to be good and commit the file: %w", err)
	}
	if err != nil {
		return b, err
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// WriteJSON replaces a file; parent folders are made.
func WriteJSON(path string, value any) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", " ")
		return encoder.Encode(value)
	})
}

// Tolerated is the share of the baseline that a case must reach.
const Tolerated = 0.9

// Verdict is what a comparison with a baseline comes to.
type Verdict string

// Regression means slower than tolerated beyond what noise explains; Unclear that it looks so but noise may be the
// reason.
const (
	Fine       Verdict = "fine"
	Unclear    Verdict = "unclear"
	Regression Verdict = "regression"
)

// Comparison is a case's figures now over those of the baseline, with the 95 % confidence interval of that ratio.
type Comparison struct {
	Ratio, Low, High float64
	Verdict          Verdict
}

func (c Comparison) String() string {
	return fmt.Sprintf("%.3f (95 %%: %.3f … %.3f) of the baseline: %s", c.Ratio, c.Low, c.High, c.Verdict)
}

// minimalNoise is the least relative standard deviation that a measurement is credited with: a few samples may agree
// by chance.
const minimalNoise = 0.005

// Decide compares shares of the bound. Medians and median deviations make single outliers harmless; on the scale of
// logarithms a ratio is a difference, whose interval is Student's. Both sets are taken to be equally noisy: a baseline
// has few samples.
func Decide(baseline, now []float64) (Comparison, error) {
	if len(baseline) < 2 || len(now) < 2 {
		return Comparison{}, fmt.Errorf("%d samples against a baseline of %d: expected at least 2 of each", len(now),
			len(baseline))
	}
	a, b := logarithms(now), logarithms(baseline)
	difference := median(a) - median(b)
	sigma := max(1.4826*median(append(distances(a), distances(b)...)), minimalNoise)
	// The variance of a median of n normal values is π/2n times theirs.
	standard := sigma * math.Sqrt(math.Pi/2*(1/float64(len(a))+1/float64(len(b))))
	margin := statistics.Student(0.975, float64(len(a)+len(b)-2)) * standard
	c := Comparison{Ratio: math.Exp(difference), Low: math.Exp(difference - margin),
		High: math.Exp(difference + margin), Verdict: Fine}
	switch {
	case c.High < Tolerated:
		c.Verdict = Regression
	case c.Ratio < Tolerated:
		c.Verdict = Unclear
	}
	return c, nil
}

// CompareMemory compares peaks with those of the baseline, in words too. They hardly vary: the medians decide. Older
// baselines have none.
func CompareMemory(baseline, now []float64) (text string, fine bool) {
	switch {
	case len(now) == 0:
		return "memory not measured", true
	case len(baseline) == 0:
		return fmt.Sprintf("memory %.2f GB, not compared: the baseline has none (-write-baseline adds it)",
			median(now)/1e9), true
	}
	ratio := median(now) / median(baseline)
	if fine = ratio*Tolerated <= 1; !fine {
		return fmt.Sprintf("memory %.2f of the baseline: regression", ratio), false
	}
	return fmt.Sprintf("memory %.2f of the baseline", ratio), true
}

func logarithms(values []float64) (out []float64) {
	for _, v := range values {
		out = append(out, math.Log(v))
	}
	return out
}

// distances of values from their median. Of an odd number one is the median itself, whose distance of 0 says nothing.
func distances(values []float64) []float64 {
	middle := median(values)
	var out []float64
	for _, v := range values {
		out = append(out, math.Abs(v-middle))
	}
	slices.Sort(out)
	return out[len(out)%2:]
}
