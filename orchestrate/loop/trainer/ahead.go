package trainer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/versions"
)

// underWayFile is the file of a checkpoint with the episodes that had begun.
const underWayFile = "under_way.json"

// window plays batches before their steps: beside the trainer, or on ranks of their own.
type window interface {
	Next(ctx context.Context, step, batch int) ([]*episode.Episode, rollout.Stats, error)
	// Fresh tells whether all keys and values under way were computed again at the present step's beginning.
	Fresh() bool
	// Spent is what has happened beside the update since the last call.
	Spent() rollout.Beside
	// UnderWay is what has begun, which goes on with the next step. All ranks that train call it.
	UnderWay(ctx context.Context) ([]rollout.UnderWay, error)
	Close() error
}

// ahead plays batches before their steps and writes the run's schedule.
type ahead struct {
	window window // nil: each step plays its own
	clock  *session.Clock
	file   *os.File // the schedule
	begun  time.Time
	offset float64 // what the run had taken before
	line   versions.Closed
	tokens int // sampled for the step's batch, at any time
	keeps  bool
	under  []rollout.UnderWay // for the next checkpoint
}

// openAhead opens the window, where the configuration asks for one or a schedule is followed, with what a checkpoint
// has under way, and the schedule that the run writes.
func (t *Trainer) openAhead(ctx context.Context, from string) error {
	c, o := t.Config, t.Options
	if t.rollouts.replay != nil || c.Analysis.Only {
		return nil
	}
	a := &ahead{clock: t.clock, begun: time.Now()}
	var err error
	if path := t.File(versions.File); path != "" {
		if a.file, a.offset, err = versions.Open(path, t.State.Step); err != nil {
			return err
		}
	}
	t.rollouts.ahead = a
	if c.Rollout.Staleness == 0 && o.Repeat == "" {
		return nil
	}
	options, err := windowOptions(c, o, t.State.Step, t.State.NextBatch(), t.World)
	if err != nil {
		return err
	}
	a.keeps, t.preparation.older, t.Checkpoints.More = options.Keep, c.Rollout.Staleness > 0, a.save
	if s := t.samplers; s != nil {
		a.window = s
		return s.begin(ctx, t, from, options)
	}
	if t.World != nil {
		return fmt.Errorf("rollout.staleness and --replay-schedule: this run has %d ranks, which all train: set "+
			"fsdp.samplers to how many of them sample instead, or take one process", t.World.Size())
	}
	own, err := rollout.NewWindow(ctx, t.Sampler.Player, options)
	if err != nil {
		return err
	}
	a.window, t.rollouts.Window = own, own
	beside := &guest{own, t.clock}
	t.Actor.Guest = beside
	if t.Reference != nil {
		t.Reference.Guest = beside
	}
	under, err := readUnderWay(from)
	if err == nil {
		err = own.Restore(under)
	}
	return err
}

// windowOptions are those of a run whose steps before one are done, and of the batches before one.
func windowOptions(c *config.Config, o session.Options, done, next int, w *ranks.World) (rollout.WindowOptions, error) {
	options := rollout.WindowOptions{Staleness: c.Rollout.Staleness, First: next, Last: c.Run.Steps,
		Plan:   func(batch int) rollout.Plan { return rollout.TrainingPlan(c, 0, batch) },
		Finish: c.Rollout.OnUpdate == "finish", Keep: c.Rollout.OnUpdate == "keep"}
	if w != nil {
		options.Processes = c.FSDP.Samplers
	}
	if o.Repeat == "" {
		return options, nil
	}
	until := c.Run.Steps
	if o.Until > 0 {
		until = min(o.Until, until)
	}
	var err error
	if options.Repeat, err = openSchedule(o.Repeat, done+1, until); err == nil && until > done {
		options.Last = options.Repeat.Last(until)
	}
	return options, err
}

// openSchedule reads the schedule of a run for some steps.
func openSchedule(run string, first, last int) (*versions.Schedule, error) {
	s, err := versions.Read(filepath.Join(run, versions.File))
	if err == nil {
		err = s.Covers(first, last)
	}
	if err != nil {
		return nil, fmt.Errorf("--replay-schedule: %w", err)
	}
	return s, nil
}

// now is the time of the run.
func (a *ahead) now() float64 { return a.offset + time.Since(a.begun).Seconds() }

// batches has the batches of a step played, and notes when and by whom.
func (a *ahead) batches(play func() ([]*episode.Episode, rollout.Stats, int, error)) ([]*episode.Episode, rollout.Stats,
	int, error) {
	if a == nil {
		return play()
	}
	begun := a.now()
	episodes, stats, batches, err := play()
	if err != nil {
		return nil, stats, batches, err
	}
	a.line = versions.Closed{Begun: begun, Closed: a.now()}
	a.line.Sampling.Before, a.line.Waiting.Before = stats.Generation.Seconds(), stats.EnvWait.Seconds()
	a.tokens = stats.NewTokens
	if a.window != nil {
		a.line.Fresh = a.keeps && a.window.Fresh()
		a.clock.Add("wait_trainer", time.Duration((a.line.Closed-begun)*float64(time.Second)))
	}
	return episodes, stats, batches, nil
}

// changed writes the line of a step that is done.
func (a *ahead) changed(s *Step, first int) error {
	if a == nil {
		return nil
	}
	if a.window != nil {
		spent := a.window.Spent()
		a.clock.Add("gen", spent.Sampled)
		a.clock.Add("wait_sampler", spent.Blocked)
		a.line.Sampling.Beside, a.line.Waiting.Beside = spent.Sampled.Seconds(), spent.Blocked.Seconds()
		if took := a.line.Sampling.Before + a.line.Sampling.Beside; took > 0 {
			s.Line.Add(samplingMetrics{float64(a.tokens) / took})
		}
	}
	if a.file == nil {
		return nil
	}
	a.line.Step, a.line.Changed, a.line.Episodes = s.Number, a.now(), versions.Enter(s.Episodes)
	if s.Batches > 1 || first != s.Number {
		a.line.Batches, a.line.First = s.Batches, first
	}
	line, err := json.Marshal(a.line)
	if err == nil {
		_, err = a.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("%s: step %d: %w", a.file.Name(), s.Number, err)
	}
	return nil
}

// guest lets a window use the trainer's models between their passes.
type guest struct {
	window *rollout.Window
	clock  *session.Clock
}

// Between implements train.Guest.
func (g *guest) Between(ctx context.Context) error {
	return g.clock.Aside(func() error { return g.window.Between(ctx) })
}

// Changing implements train.Guest.
func (g *guest) Changing() error { return g.clock.Aside(g.window.Changing) }

// pause asks for what is under way, for a checkpoint.
func (a *ahead) pause(ctx context.Context) (err error) {
	if a != nil && a.window != nil {
		a.under, err = a.window.UnderWay(ctx)
	}
	return err
}

// save writes what is under way into a checkpoint.
func (a *ahead) save(dir string) error {
	return atomicfile.Write(filepath.Join(dir, underWayFile), func(w io.Writer) error {
		return json.NewEncoder(w).Encode(a.under)
	})
}

// readUnderWay reads what a checkpoint has under way; "" and one of a run that played no batch ahead have nothing.
func readUnderWay(from string) (all []rollout.UnderWay, err error) {
	if from == "" {
		return nil, nil
	}
	path := filepath.Join(from, underWayFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func (a *ahead) close() {
	if a == nil {
		return
	}
	if a.window != nil {
		a.window.Close() // what does not close harms nobody any more
	}
	if a.file != nil {
		a.file.Close()
	}
}

// stalenessMetrics say how old the weights were that drew the tokens of a batch.
type stalenessMetrics struct {
	Mean   float64            `metric:"staleness/mean" unit:"steps" doc:"training steps between the drawing of a token and the training on it, mean over the sampled tokens trained on (runs with rollout.staleness > 0)"`
	Max    int                `metric:"staleness/max" unit:"steps" doc:"the most: at most rollout.staleness"`
	Shares map[string]float64 `metric:"staleness/share/{steps}" unit:"share" doc:"of the sampled tokens, by staleness"`
	Mixed  float64            `metric:"staleness/mixed" unit:"share" doc:"of the sampled tokens: drawn with keys and values of older weights (rollout.on_update = keep)"`
}

// mixedMetrics say what keys and values of older weights make of log-probs.
type mixedMetrics struct {
	Mean float64 `metric:"ratio/mixed_mean" doc:"of tokens that the newest weights drew with keys and values of older ones (rollout.on_update = keep), where the trainer has scored them before its first change: mean distance of the recorded log-prob from that of the newest weights alone"`
	Max  float64 `metric:"ratio/mixed_max" doc:"the largest"`
}

// newMixedMetrics compare the log-probs of episodes with those of the weights before a step's update; ok tells whether
// there is such a token.
func newMixedMetrics(episodes []*episode.Episode, scored [][]float32, step int) (m mixedMetrics, ok bool) {
	tokens := 0.0
	for i, e := range episodes {
		for _, part := range e.Mixed {
			for t := part[0]; t < part[1]; t++ {
				run, _ := slices.BinarySearchFunc(e.Versions, t+1, func(r episode.Run, t int) int {
					return cmp.Compare(r.Token, t)
				})
				if !e.Mask[t] || run == 0 || e.Versions[run-1].Version != step-1 {
					continue
				}
				gap := math.Abs(float64(scored[i][t]) - float64(e.Logprob[t]))
				m.Mean, m.Max, tokens = m.Mean+gap, max(m.Max, gap), tokens+1
			}
		}
	}
	m.Mean /= max(tokens, 1)
	return m, tokens > 0
}

// stalenessOf counts the training steps between the drawing of each token and the training on it at a step; -1 where
// the policy drew nothing.
func stalenessOf(episodes []*episode.Episode, step int) [][]int {
	all := make([][]int, len(episodes))
	for i, e := range episodes {
		run := -1
		for t, sampled := range e.Mask {
			for run+1 < len(e.Versions) && e.Versions[run+1].Token <= t {
				run++
			}
			age := -1
			if sampled && run >= 0 {
				age = step - 1 - e.Versions[run].Version
			}
			all[i] = append(all[i], age)
		}
	}
	return all
}

// newStalenessMetrics describe a batch that is trained on at a step.
func newStalenessMetrics(episodes []*episode.Episode, step int) stalenessMetrics {
	m, tokens := stalenessMetrics{Shares: map[string]float64{}}, 0.0
	for i, ages := range stalenessOf(episodes, step) {
		e := episodes[i]
		for _, stale := range ages {
			if stale < 0 {
				continue
			}
			tokens++
			m.Mean, m.Max = m.Mean+float64(stale), max(m.Max, stale)
			m.Shares[fmt.Sprint(stale)]++
		}
		for _, part := range e.Mixed {
			m.Mixed += float64(part[1] - part[0])
		}
	}
	m.Mixed /= max(tokens, 1)
	m.Mean /= max(tokens, 1)
	for key := range m.Shares {
		m.Shares[key] /= tokens
	}
	return m
}
