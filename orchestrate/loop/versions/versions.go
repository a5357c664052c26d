// Package versions records which weights drew which tokens of a run, and when: RUN/schedule.jsonl, a line for each
// training step, from which the run can be repeated to the same bits.
package versions

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"slices"

	"gyre/internal/lines"
	"gyre/orchestrate/loop/episode"
)

// File is the name of a run's schedule in its folder.
const File = "schedule.jsonl"

// Closed is a line of a schedule: a training step with its batch and the times of the run at which things happened, in
// seconds.
type Closed struct {
	Step int `json:"step"`
	// Its batches, where it has another number of them than one: how many, and the number of the first.
	Batches  int     `json:"batches,omitempty"`
	First    int     `json:"first,omitempty"`
	Sizes    []int   `json:"sizes,omitempty"` // of its groups, where they follow a budget
	Begun    float64 `json:"begun"`           // the trainer asks for the batch
	Closed   float64 `json:"closed"`          // the batch is complete
	Changed  float64 `json:"changed"`         // the weights have changed: the next version counts
	Sampling Spent   `json:"sampling"`
	Waiting  Spent   `json:"waiting"`
	// Fresh: at the step's beginning keys and values of all replies under way were computed again (rollout.on_update =
	// "keep").
	Fresh    bool      `json:"fresh,omitempty"`
	Episodes []Entered `json:"episodes"`
}

// Spent are seconds of a step, before its batch was complete and during its update.
type Spent struct {
	Before float64 `json:"before"`
	During float64 `json:"beside"`
}

// Entered is an episode of a step, counted over its batches. Those that are missing failed.
type Entered struct {
	Episode  int      `json:"episode"`
	Versions [][2]int `json:"versions"` // runs of tokens: the first token, and the version that drew it
	Checksum uint32   `json:"checksum"` // of the tokens
}

// Enter are the entries of a batch.
func Enter(batch []*episode.Episode) []Entered {
	out := make([]Entered, len(batch))
	for i, e := range batch {
		out[i] = Entered{Episode: e.Index, Versions: Pairs(e.Versions), Checksum: Checksum(e.IDs)}
	}
	return out
}

// Pairs are runs as files have them.
func Pairs(runs []episode.Run) [][2]int {
	out := make([][2]int, len(runs))
	for i, run := range runs {
		out[i] = [2]int{run.Token, run.Version}
	}
	return out
}

// Runs are the runs of pairs.
func Runs(pairs [][2]int) (runs []episode.Run) {
	for _, pair := range pairs {
		runs = append(runs, episode.Run{Token: pair[0], Version: pair[1]})
	}
	return runs
}

// Schedule says which weights drew which tokens of a run, step by step.
type Schedule struct {
	Path  string
	Steps []Closed // one after the other
	// Diverging is a schedule whose tokens may be others than those that are drawn by it: each place in an episode has
	// the version that it had, or the present one where that is gone.
	Diverging bool
}

// Read reads a run's schedule. A last line that was cut short is left out.
func Read(path string) (*Schedule, error) {
	s, _, err := read(path, math.MaxInt)
	return s, err
}

// read reads the lines of steps up to one, and where they end.
func read(path string, last int) (s *Schedule, end int64, err error) {
	s = &Schedule{Path: path}
	for line, err := range lines.Read(path) {
		if err != nil {
			return nil, 0, err
		}
		if line.Torn {
			break
		}
		var closed Closed
		if err := json.Unmarshal(line.Text, &closed); err != nil {
			return nil, 0, line.Fault(err)
		}
		if n := len(s.Steps); n > 0 && closed.Step != s.Steps[n-1].Step+1 {
			return nil, 0, line.Fault(fmt.Errorf("step %d follows step %d: a schedule has a line for each step",
				closed.Step, s.Steps[n-1].Step))
		}
		if closed.Step > last {
			break
		}
		s.Steps, end = append(s.Steps, closed), line.To
	}
	return s, end, nil
}

// Open prepares a run's own schedule for the steps after those that are done, of which it must have those from first
// on: lines of later ones, which are done again, are removed. Close it.
func Open(path string, first, done int) (file *os.File, last float64, err error) {
	before, end, err := read(path, done)
	if errors.Is(err, fs.ErrNotExist) {
		before, err = &Schedule{}, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if n := len(before.Steps); n > 0 && before.Steps[0].Step <= first {
		first = before.Steps[n-1].Step + 1
	}
	if first <= done {
		return nil, 0, fmt.Errorf("%s lacks steps %d to %d, which the checkpoint of step %d has done: put the file "+
			"back from a copy, or go on in a new run directory with --resume-from and another run.name", path, first,
			done, done)
	}
	if len(before.Steps) > 0 {
		last = before.Steps[len(before.Steps)-1].Changed
	}
	file, err = lines.Continue(path, end, 0o644)
	return file, last, err
}

// at is the line of a step, nil where there is none.
func (s *Schedule) at(step int) *Closed {
	if len(s.Steps) == 0 || step < s.Steps[0].Step || step > s.Steps[len(s.Steps)-1].Step {
		return nil
	}
	return &s.Steps[step-s.Steps[0].Step]
}

// batch finds the line of a batch of so many episodes, and those of the line that are the batch's.
func (s *Schedule) batch(number, size int) (line *Closed, episodes []Entered, from int) {
	at, _ := slices.BinarySearchFunc(s.Steps, number, func(c Closed, n int) int {
		return cmp.Compare(c.first()+max(c.Batches, 1)-1, n)
	})
	if at == len(s.Steps) || s.Steps[at].first() > number {
		return nil, nil, 0
	}
	line = &s.Steps[at]
	from = (number - line.first()) * size
	for _, e := range line.Episodes {
		if from <= e.Episode && e.Episode < from+size {
			episodes = append(episodes, e)
		}
	}
	return line, episodes, from
}

func (c *Closed) first() int { return cmp.Or(c.First, c.Step) }

// Last is the last batch of a step.
func (s *Schedule) Last(step int) int {
	line := s.at(step)
	return line.first() + max(line.Batches, 1) - 1
}

// Covers reports whether the schedule has all steps from first to last.
func (s *Schedule) Covers(first, last int) error {
	if first <= last && (s.at(first) == nil || s.at(last) == nil) {
		have := "none"
		if n := len(s.Steps); n > 0 {
			have = fmt.Sprintf("%d to %d", s.Steps[0].Step, s.Steps[n-1].Step)
		}
		return fmt.Errorf("%s: steps %d to %d are to be repeated, the schedule has %s: set run.steps", s.Path, first,
			last, have)
	}
	return nil
}

// Runs are those of the tokens of an episode of a batch of so many; known is whether it has them.
func (s *Schedule) Runs(batch, size, index int) (runs []episode.Run, known bool) {
	_, episodes, from := s.batch(batch, size)
	for _, e := range episodes {
		if e.Episode == from+index {
			return Runs(e.Versions), true
		}
	}
	return nil, false
}

// Sizes are those of the groups of the batches that steps have begun with.
func (s *Schedule) Sizes() map[int][]int {
	all := map[int][]int{}
	for _, line := range s.Steps {
		all[line.first()] = line.Sizes
	}
	return all
}

// Fresh tells whether keys and values under way were computed again at the beginning of a step.
func (s *Schedule) Fresh(step int) bool { return s.at(step).Fresh }

// Begins is the first version that draws tokens of a batch of so many episodes.
func (s *Schedule) Begins(batch, size int) int {
	line, episodes, _ := s.batch(batch, size)
	first := line.Step - 1
	for _, e := range episodes {
		if len(e.Versions) > 0 {
			first = min(first, e.Versions[0][1])
		}
	}
	return first
}

// Check compares a batch of so many episodes that was played by the schedule with that of the run.
func (s *Schedule) Check(batch, size int, played []*episode.Episode) error {
	line, then, from := s.batch(batch, size)
	if s.Diverging {
		return nil
	}
	if len(then) != len(played) {
		return fmt.Errorf("%s: batch %d had %d episodes, now %d", s.Path, batch, len(then), len(played))
	}
	for i, e := range played {
		if then[i].Checksum != Checksum(e.IDs) || then[i].Episode != from+e.Index {
			return fmt.Errorf("%s: step %d: episode %d has other tokens than in that run: its environment, the model "+
				"or the configuration is another", s.Path, line.Step, from+e.Index)
		}
	}
	return nil
}

// Checksum is that of tokens.
func Checksum(ids []int32) uint32 {
	bytes, _ := binary.Append(nil, binary.LittleEndian, ids) // fails only for types without a size
	return crc32.ChecksumIEEE(bytes)
}
