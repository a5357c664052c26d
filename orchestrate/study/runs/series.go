package runs

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Series are metrics of a run over its steps. It is safe for concurrent use and reads what a running run adds.
type Series struct {
	path string

	mu      sync.Mutex // guards what follows
	end     int64      // where what was read ends in the file
	steps   []int
	columns map[string][]float64 // by key, NaN where a step does not have it
	names   []string             // of all metrics of the first and the last line
}

// OpenSeries names the metrics of a run's folder; nothing is read yet.
func OpenSeries(dir string) *Series {
	file := filepath.Join(dir, metrics.File)
	if !atomicfile.Exists(dir, metrics.File) && atomicfile.Exists(dir, rundir.HistoryFile) {
		file = filepath.Join(dir, rundir.HistoryFile)
	}
	return &Series{path: file, columns: map[string][]float64{}}
}

// Read gives the columns of keys, each as long as steps. A key may hold a *: it is then the mean of the metrics that
// it matches (rundir.Run.Mean). A run that has logged nothing has no steps.
func (s *Series) Read(keys ...string) (steps []int, columns map[string][]float64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	file, err := os.Open(s.path)
	if err != nil {
		if os.IsNotExist(err) {
			err = nil
		}
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	fresh := info.Size() < s.end // a resumed run has dropped lines
	for _, key := range keys {
		if s.columns[key] == nil {
			fresh, s.columns[key] = true, []float64{}
		}
	}
	if fresh {
		s.end, s.steps = 0, nil
		for key := range s.columns {
			s.columns[key] = []float64{}
		}
	}
	added, err := io.ReadAll(io.NewSectionReader(file, s.end, info.Size()-s.end))
	if err != nil {
		return nil, nil, err
	}
	s.add(added[:bytes.LastIndexByte(added, '\n')+1])
	columns = map[string][]float64{}
	for _, key := range keys {
		columns[key] = slices.Clip(s.columns[key])
	}
	return slices.Clip(s.steps), columns, nil
}

// add takes in whole lines.
func (s *Series) add(lines []byte) {
	s.end += int64(len(lines))
	if len(lines) == 0 {
		return
	}
	whole := bytes.TrimRight(lines, "\n")
	first, _, _ := bytes.Cut(whole, []byte{'\n'})
	for _, line := range [][]byte{first, whole[bytes.LastIndexByte(whole, '\n')+1:]} {
		for name := range metrics.Raw(line).Numbers("") {
			if at, known := slices.BinarySearch(s.names, name); !known {
				s.names = slices.Insert(s.names, at, name)
			}
		}
	}
	for line := range bytes.Lines(lines) {
		raw := metrics.Raw(line)
		step, ok := raw.Step()
		if !ok {
			continue
		}
		s.steps = append(s.steps, step)
		for key, column := range s.columns {
			s.columns[key] = append(column, mean(raw, key))
		}
	}
}

// mean is that of the metrics of a line that a key names.
func mean(raw metrics.Raw, key string) float64 {
	prefix, suffix, wild := strings.Cut(key, "*")
	sum, n := 0.0, 0
	for name, v := range raw.Numbers(prefix) {
		middle, ok := strings.CutSuffix(name[len(prefix):], suffix)
		if ok && (name == key || wild && !strings.Contains(middle, "/")) {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// Names are those of the run's metrics, in alphabetical order: those of the first and the last lines that were read.
func (s *Series) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool {
		return name == "schema" || name == "step" || strings.HasPrefix(name, "_")
	})
}
