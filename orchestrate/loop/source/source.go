// Package source is where the episodes of a training step come from:
//
//	played.go      each step plays its own batch
//	ahead.go       batches are played before their steps, beside the update or on ranks that only sample (samplers.go)
//	replayed.go    episodes are read from a file
//
// A batch carries its provenance: which weights drew its tokens, and what the log-probs are worth that its episodes
// carry. The phases of a step read the provenance and know nothing else of how a run plays. schedule.go records which
// weights drew which tokens, so that a run whose batches are played ahead can be repeated to the same bits. budget.go
// decides how many episodes each group of a batch has.
package source

import (
	"context"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
)

// Source gives the steps of a run their episodes. All ranks that train call the same methods in the same order, from
// the goroutine that trains.
type Source interface {
	// Next gives the batch of a step, and writes what is known of its sampling into the step's line.
	Next(ctx context.Context, step int, line metrics.Line) (Batch, error)
	// Updated is told that the step of the last batch is done: the weights are those of the next one. It writes what
	// was sampled beside the update into the step's line.
	Updated(line metrics.Line) error
	// UnderWay stops at what has begun of later batches, which goes on with the next step. The function that it returns
	// writes this into the folder of a checkpoint.
	UnderWay(ctx context.Context) (write func(dir string) error, err error)
	// Close ends what is under way.
	Close() error
}

// Batch is the episodes of a step.
type Batch struct {
	Episodes []*episode.Episode // as they were played, before the filter
	// Surplus counts those at the end of Episodes whose groups are not needed, because the ones before them fill a
	// training batch (filter.max_batches).
	Surplus int
	Provenance
}

// Filling are the episodes that the filter chooses from.
func (b Batch) Filling() []*episode.Episode { return b.Episodes[:len(b.Episodes)-b.Surplus] }

// Weights say which weights drew the tokens of a batch.
type Weights int

const (
	Present Weights = iota // those that its step begins with
	Older                  // those of earlier steps, too: episodes say which (episode.Episode.Versions)
	Unknown                // those of another program or run
)

// Provenance says where the tokens of a batch come from, and what the log-probs are worth that its episodes carry.
type Provenance struct {
	Weights Weights
	Exact   bool // the log-probs are, bit for bit, those that the trainer computes with the weights that drew the tokens
	Given   bool // the log-probs are to be the old ones, whatever weights they are of
}

// Serves reports whether the log-probs that episodes carry are the old log-probs of the update. An update that corrects
// for the policy that drew the tokens needs those of the present weights.
func (p Provenance) Serves(corrects bool) bool {
	return (p.Exact || p.Given) && (p.Weights == Present || !corrects)
}

// Parts are the parts of an experiment that reinforcement learning needs, with or without those that play.
func Parts(plays bool) experiment.Parts {
	return experiment.Parts{Learn: true, Critic: true, Reference: true, Analyse: true, Play: plays}
}

// Plan is what is known of a run's source before its models are there.
type Plan struct{ replay *replayed }

// NewPlan reads the file of a run that replays episodes.
func NewPlan(c *config.Config, o session.Options) (Plan, error) {
	if o.Replay == "" {
		return Plan{}, nil
	}
	r, err := openReplay(o.Replay, c.Run.Steps)
	return Plan{r}, err
}

// Parts are the parts of an experiment that the run needs.
func (p Plan) Parts() experiment.Parts { return Parts(p.replay == nil) }

// Run is a run whose models are there, as a source needs it.
type Run struct {
	*session.Training
	Rollouts *session.Rollouts // plays for validation and analysis, too
	Clock    *session.Clock
	Samplers *Samplers
	From     string // the checkpoint that the run goes on from; "" for none
}

// Open opens the source that the run's configuration and options ask for. Close it.
func (p Plan) Open(ctx context.Context, r Run) (Source, error) {
	c, o := r.Config, r.Options
	if p.replay != nil {
		if len(p.replay.numbers) == 1 && c.Run.Steps > 1 {
			r.Log.Infof("replay: %s holds the episodes of one step: each of the %d steps trains on all %d of them",
				p.replay.path, c.Run.Steps, len(p.replay.at(1)))
		}
		return p.replay, nil
	}
	s, err := openSchedule(r)
	own := &played{Run: r, schedule: s, shares: newShares(r)}
	if err != nil || c.Analysis.Only || c.Rollout.Staleness == 0 && o.ReplaySchedule == "" {
		return own, err
	}
	return openAhead(ctx, own)
}
