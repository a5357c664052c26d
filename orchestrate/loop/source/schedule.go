package source

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/versions"
)

// schedule records the steps of a run whose episodes are played: which weights drew which tokens, and when.
type schedule struct {
	file   *os.File // nil where none is kept: on ranks that write nothing, and for runs that only analyse
	begun  time.Time
	offset float64 // what the run had taken before, in seconds
	line   versions.Closed
}

// openSchedule opens the schedule of a run, without the steps that are done again. Close it.
func openSchedule(r Run) (s *schedule, err error) {
	s = &schedule{begun: time.Now()}
	if path := r.File(versions.File); path != "" && !r.Config.Analysis.Only {
		first := max(r.FirstStep, 1)
		if before := r.Dir.Before; before != nil && before.Replay != "" {
			first = r.State.Step + 1 // given episodes have no schedule
		}
		s.file, s.offset, err = versions.Open(path, first, r.State.Step)
	}
	return s, err
}

// now is the time of the run in seconds.
func (s *schedule) now() float64 { return s.offset + time.Since(s.begun).Seconds() }

// begin notes that the trainer asks for the batch of a step.
func (s *schedule) begin(step int) { s.line = versions.Closed{Step: step, Begun: s.now()} }

// close notes that the batch is complete.
func (s *schedule) close(episodes []*episode.Episode, stats rollout.Stats) {
	s.line.Closed, s.line.Episodes = s.now(), versions.Enter(episodes)
	s.line.Sampling.Before, s.line.Waiting.Before = stats.Generation.Seconds(), stats.EnvWait.Seconds()
}

// sampling is how long the sampler was at work in the step, in seconds.
func (s *schedule) sampling() float64 { return s.line.Sampling.Before + s.line.Sampling.During }

// changed notes that the weights have changed, and writes the line of the step, which took so many batches from the
// first on.
func (s *schedule) changed(first, batches int) error {
	if s.file == nil {
		return nil
	}
	s.line.Changed = s.now()
	if batches > 1 || first != s.line.Step {
		s.line.Batches, s.line.First = batches, first
	}
	line, err := json.Marshal(s.line)
	if err == nil {
		_, err = s.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = s.file.Sync() // a checkpoint on the disk has its steps there
	}
	if err != nil {
		return fmt.Errorf("%s: step %d: %w", s.file.Name(), s.line.Step, err)
	}
	return nil
}

// Close closes the file.
func (s *schedule) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// windowOptions are those of a run that goes on somewhere, whose batches have sizes as they are decided at the time, or
// as they were where the run is repeated. So many processes divide its batches; with 0 of them one plays all.
func windowOptions(c *config.Config, o session.Options, decided sizes, at beginning, processes int) (rollout.WindowOptions,
	error) {
	done := at.Step
	options := rollout.WindowOptions{Staleness: c.Rollout.Staleness, First: at.Batch, Last: c.Run.Steps,
		Plan:   func(batch int) rollout.Plan { return decided.plan(c, 0, batch) },
		Finish: c.Rollout.OnUpdate == "finish", Keep: c.Rollout.OnUpdate == "keep", Processes: processes}
	if o.ReplaySchedule == "" {
		return options, nil
	}
	until := c.Run.Steps
	if o.Until > 0 {
		until = min(o.Until, until)
	}
	s, err := versions.Read(filepath.Join(o.ReplaySchedule, versions.File))
	if err == nil {
		err = s.Covers(done+1, until)
	}
	if err != nil {
		return options, fmt.Errorf("--replay-schedule: %w", err)
	}
	s.Diverging = o.Diverging
	maps.Copy(decided, s.Sizes())
	if options.Schedule = s; until > done {
		options.Last = s.Last(until)
	}
	return options, nil
}
