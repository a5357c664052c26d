package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/endpoint"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/run/metrics"
)

// Evaluation is what a policy's validation found.
type Evaluation struct {
	Metrics    map[string]float64
	Episodes   []*episode.Episode
	Parameters int64           // of the policy; 0 where they are not known
	Usage      *endpoint.Usage // of a server; nil for this process's engine
}

// Evaluator plays rounds of a validation set with one policy. Close it.
type Evaluator struct {
	*Session
	parameters int64
	remote     *rollout.Player  // that asks the server; nil where the session's sampler plays
	server     *endpoint.Server // nil without
}

// Evaluated says which policy is evaluated: that of a checkpoint (a run directory, a global_step_N folder or a Hugging
// Face directory), or model.path with the adapter in a directory of PEFT's layout. One of them is "", or both are:
// the policy is then that in model.path.
type Evaluated struct{ Checkpoint, Adapter string }

// OpenEvaluator loads a policy to be evaluated under a configuration. It needs no run directory. Every process of world
// plays some of the groups and returns the whole.
func OpenEvaluator(ctx context.Context, c *config.Config, policy Evaluated, world *ranks.World,
	console *metrics.Console) (*Evaluator, error) {
	s := New(c, console, world)
	parts, err := s.evaluated(ctx, policy)
	if err != nil {
		return nil, err
	}
	opened, err := s.Open(ctx, parts, nil, nil)
	if err != nil {
		s.Close()
		return nil, err
	}
	return &Evaluator{Session: s, parameters: experiment.Parameters(opened.Policy.Shape)}, nil
}

// OpenEndpoint lets a server play under a configuration. Of model.path the tokenizer and the template are used, not the
// weights.
func OpenEndpoint(ctx context.Context, c *config.Config, where endpoint.Config,
	console *metrics.Console) (*Evaluator, error) {
	s := New(c, console, ranks.Alone())
	opened, err := experiment.Open(c, experiment.Parts{Show: true})
	if err != nil {
		return nil, err
	}
	where.Warn = s.Log.Warnf
	e := &Evaluator{Session: s, remote: newPlayer(opened, nil)}
	if e.server, err = endpoint.Open(ctx, where, opened.Tokenizer); err != nil {
		return nil, errors.Join(err, e.remote.Close())
	}
	how := "takes and returns the token ids of " + c.Model.Path + ", so its replies are those of the local engine"
	if !e.server.Exact {
		how = "gets messages and returns text: replies need not begin with the block that local ones begin with, and " +
			"rollout.max_length counts tokens of " + c.Model.Path
	}
	s.Log.Infof("endpoint: %s %s", e.server.Model, how)
	e.remote.Ask(e.server)
	return e, nil
}

// Close frees the policy.
func (e *Evaluator) Close() error {
	defer e.Session.Close()
	if e.server == nil {
		return nil
	}
	return errors.Join(e.server.Close(), e.remote.Close())
}

// Round plays a round of the validation set: 0 is the set of the configuration, further ones are as large and go on
// from its environment seeds.
func (e *Evaluator) Round(ctx context.Context, n int) (*Evaluation, error) {
	plan, label := rollout.ValidationPlan(e.Config, n), "validation"
	plan.EnvSeed += int64(n) * int64(plan.Groups())
	if n > 0 {
		label = fmt.Sprintf("validation, round %d", n+1)
	}
	r, out := Rollouts{Session: e.Session}, &Evaluation{Parameters: e.parameters}
	var stats rollout.Stats
	var err error
	if e.server == nil {
		out.Episodes, stats, err = r.Play(ctx, plan, label)
	} else {
		before := e.server.Usage()
		out.Episodes, stats, err = e.watch(ctx, e.remote, plan, label)
		out.Usage = new(e.server.Usage().Since(before))
	}
	if err != nil {
		return nil, err
	}
	if len(out.Episodes) == 0 {
		return nil, fmt.Errorf("the environments failed in all %d episodes: %s", stats.Planned,
			strings.Join(stats.Warnings(), "; "))
	}
	if e.server != nil && !e.server.Exact { // the server's own count
		out.Usage.Texts = len(out.Episodes)
	}
	out.Summarize()
	return out, nil
}

// Summarize makes the metrics of the episodes.
func (e *Evaluation) Summarize() {
	line, found := metrics.Line{}, rollout.Summarize(e.Episodes)
	if e.Usage != nil && e.Usage.Texts > 0 {
		found.Length = new(float64(e.Usage.Completion) / float64(e.Usage.Texts))
	}
	line.Add(found)
	e.Metrics = line.Floats()
}

// evaluated are the parts of an experiment that a policy is evaluated with.
func (s *Session) evaluated(ctx context.Context, policy Evaluated) (experiment.Parts, error) {
	if policy.Adapter != "" {
		return experiment.Parts{Play: true, Adapter: policy.Adapter}, s.settle(ctx, policy.Adapter)
	}
	from, err := s.Locate(ctx, policy.Checkpoint)
	if err != nil {
		return experiment.Parts{}, err
	}
	return experiment.Parts{Play: true, Policy: from.Actor, Tokenizer: experiment.TokenizerOf(from,
		s.Config.Model.Path)}, nil
}

// CheckEvaluation opens what Evaluate would play with, but for the weights.
func CheckEvaluation(c *config.Config, policy Evaluated, console *metrics.Console) (*experiment.Experiment, error) {
	s := New(c, console, ranks.Alone())
	parts, err := s.evaluated(context.Background(), policy)
	if err != nil {
		return nil, err
	}
	return experiment.Open(s.Config, parts)
}
