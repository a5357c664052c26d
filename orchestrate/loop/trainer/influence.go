package trainer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gyre/envs"
	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// Quantities are what an Inquiry may be about: the mean log-prob of the sampled tokens of given episodes, or the mean
// over them of success, score or length in tokens, or the share of them in which the policy says what a pattern matches
// ("text=PATTERN").
var Quantities = []string{"likelihood", "success", "score", "length", "text="}

// Inquiry asks which parts of a step's batch moved a quantity.
type Inquiry struct {
	Checkpoint string // global_step_N of the step before
	Step       int
	Batch      string // JSONL of the episodes that the step has played
	On         string // JSONL of the episodes that the quantity is about
	Of         string // see Quantities
	Units      func(*episode.Episode) string
	Console    *metrics.Console
}

// Influences are the answer.
type Influences struct {
	Update float64  // what the update changes of the quantity, to first order
	Units  []Moving // in the order in which they were played
	Mini   int      // optimizer steps of the update
}

// Moving is a unit of the batch.
type Moving struct {
	Name          string
	Episodes      int
	Score, Spread float64 // mean and standard deviation of the episodes' scores
	Without       float64 // the change of the quantity if the update had not had the unit
}

// Explain measures the influence of the units of a step's batch (see gradients.Influence). It changes nothing.
func Explain(ctx context.Context, c *config.Config, q Inquiry) (*Influences, error) {
	e := session.New(c, q.Console, ranks.Alone())
	defer e.Close()
	x := explanation{Session: e, Inquiry: q, preparation: &preparation{Session: e}}
	if err := x.open(ctx); err != nil {
		return nil, err
	}
	direction, err := x.direction(ctx)
	if err != nil {
		return nil, fmt.Errorf("the gradient of %s: %w", q.Of, err)
	}
	return x.measure(ctx, direction)
}

// Came is what Explain predicts as it came: how far the policy of another checkpoint than the inquiry's is from that in
// Σ w·log π over the tokens that the quantity is about, whose gradient is the quantity's at the inquiry's.
func Came(ctx context.Context, c *config.Config, q Inquiry, checkpoints ...string) (changes []float64, err error) {
	sums := make([]float64, 0, len(checkpoints)+1)
	for _, dir := range append([]string{q.Checkpoint}, checkpoints...) {
		q.Checkpoint = dir
		sum, err := surrogate(ctx, c, q)
		if err != nil {
			return nil, fmt.Errorf("%s under %s: %w", q.Of, dir, err)
		}
		sums = append(sums, sum)
	}
	for _, sum := range sums[1:] {
		changes = append(changes, sum-sums[0])
	}
	return changes, nil
}

func surrogate(ctx context.Context, c *config.Config, q Inquiry) (sum float64, err error) {
	e := session.New(c, q.Console, ranks.Alone())
	defer e.Close()
	x := explanation{Session: e, Inquiry: q}
	if err := x.openModels(ctx, experiment.Parts{Show: x.readsText()}, nil); err != nil {
		return 0, err
	}
	weigh, err := x.weights()
	if err != nil {
		return 0, err
	}
	b := session.BatchOf(x.about)
	logprobs, err := x.Actor.Compute(ctx, b, train.What{Temperature: experiment.Temperature(c)})
	if err != nil {
		return 0, err
	}
	for i, s := range b.Sequences {
		for t, sampled := range s.Mask {
			if sampled {
				sum += weigh[i] * float64(logprobs[i][t])
			}
		}
	}
	return sum, nil
}

// explanation is one at work.
type explanation struct {
	*session.Session
	Inquiry
	preparation *preparation
	about       []*episode.Episode
	how         *train.Optimization
	rate        float64
}

func (x *explanation) readsText() bool { return strings.HasPrefix(x.Of, "text=") }

func (x *explanation) open(ctx context.Context) error {
	var state session.State
	if err := checkpoint.ReadState(x.Checkpoint, &state); err != nil {
		return err
	}
	x.preparation.penalty, _ = state.Penalty(x.Config.Algorithm)
	how, rate := session.PolicyOptimization(x.Config, x.Config.Run.Steps)
	x.how, x.rate = how, rate.At(x.Step-1)
	parts := experiment.Parts{Learn: true, Critic: true, Reference: true, Show: x.readsText()}
	if err := x.openModels(ctx, parts, how); err != nil {
		return err
	}
	moments := filepath.Join(x.Checkpoint, "optimizer", "actor.safetensors")
	return checkpoint.LoadOptimizer(moments, x.Actor.Model, x.Actor.Optimizer)
}

// openModels reads the episodes that the quantity is about, and loads the models of the checkpoint.
func (x *explanation) openModels(ctx context.Context, parts experiment.Parts, how *train.Optimization) (err error) {
	if x.about, err = episode.ReadFile(x.On); err != nil {
		return err
	}
	x.about = slices.DeleteFunc(x.about, func(e *episode.Episode) bool { return e.PolicyTokens() == 0 })
	if len(x.about) == 0 {
		return fmt.Errorf("%s: in no episode has the policy said anything", x.On)
	}
	if _, err := x.Locate(ctx, x.Checkpoint); err != nil {
		return err
	}
	parts = parts.Continue(x.Checkpoint)
	if _, err := os.Stat(parts.Values); errors.Is(err, fs.ErrNotExist) {
		parts.Values = ""
	}
	_, err = x.Session.Open(ctx, parts, how, nil)
	return err
}

// direction is the gradient of the quantity.
func (x *explanation) direction(ctx context.Context) ([][]float32, error) {
	weigh, err := x.weights()
	if err != nil {
		return nil, err
	}
	b := session.BatchOf(x.about)
	b.Weights = make([][]float32, b.Len())
	for i, s := range b.Sequences {
		b.Weights[i] = make([]float32, len(s.Mask))
		for t, sampled := range s.Mask {
			if sampled {
				b.Weights[i][t] = float32(-weigh[i]) // the loss falls as the quantity rises
			}
		}
	}
	into, err := torch.NewGradients(x.Actor.Model)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	_, err = x.Actor.Backward(ctx, b, train.Likelihood(experiment.Temperature(x.Config)),
		[]train.Column{{Name: torch.Task, Kind: torch.TermTask, Into: into}})
	if err != nil {
		return nil, err
	}
	return gradients.Values(into)
}

// weights are what the log-probs of each episode's tokens count in the quantity. Means over episodes have the gradient
// Σ (r − r̄)·∇log π / n (Williams, 1992), with the mean r̄ of the episodes of one environment.
func (x *explanation) weights() ([]float64, error) {
	of, err := x.value()
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(x.about))
	if of == nil {
		tokens := session.BatchOf(x.about).Sampled()
		for i := range out {
			out[i] = 1 / float64(tokens)
		}
		return out, nil
	}
	byTag := map[string][]float64{}
	for _, e := range x.about {
		byTag[e.Tag] = append(byTag[e.Tag], of(e))
	}
	flat := true
	for i, e := range x.about {
		out[i] = (of(e) - statistics.Mean(byTag[e.Tag])) / float64(len(x.about))
		flat = flat && out[i] == 0
	}
	if flat {
		return nil, fmt.Errorf("all episodes of %s have the same: nothing tells what would change it", x.On)
	}
	return out, nil
}

// value is what the quantity is of an episode; nil for the likelihood.
func (x *explanation) value() (func(*episode.Episode) float64, error) {
	switch {
	case x.Of == "likelihood":
		return nil, nil
	case x.Of == "success":
		return func(e *episode.Episode) float64 { return envs.Indicator(e.Success) }, nil
	case x.Of == "score":
		return func(e *episode.Episode) float64 { return e.Score }, nil
	case x.Of == "length":
		return func(e *episode.Episode) float64 { return float64(e.PolicyTokens()) }, nil
	case x.readsText():
		pattern, err := regexp.Compile(strings.TrimPrefix(x.Of, "text="))
		if err != nil {
			return nil, err
		}
		return func(e *episode.Episode) float64 {
			said := slices.ContainsFunc(e.Turns, func(t episode.Turn) bool {
				return pattern.MatchString(x.Sampler.Player.Text(e.IDs[t.Reply:t.End]))
			})
			return envs.Indicator(said)
		}, nil
	}
	return nil, fmt.Errorf("no quantity %q: expected one of %s", x.Of, strings.Join(Quantities, ", "))
}

// measure prepares the batch as the step did, and measures its units.
func (x *explanation) measure(ctx context.Context, direction [][]float32) (*Influences, error) {
	steps, _, err := source.ReadSteps(x.Batch)
	if err != nil {
		return nil, err
	}
	chosen, err := x.preparation.choose(ctx, steps[x.Step], false)
	if err != nil {
		return nil, err
	}
	if chosen.Batch.Len() == 0 {
		return nil, fmt.Errorf("the filter kept none of the %d episodes of step %d: no update was made", len(steps[x.Step]),
			x.Step)
	}
	s, err := x.preparation.prepare(ctx, chosen, source.Replayed, 0, metrics.Line{})
	if err != nil {
		return nil, err
	}
	a := x.Config.Actor
	in := gradients.Influence{Subject: gradients.Subject{Policy: x.Actor, Batch: s.Batch, Objective: s.objective},
		Quantity: direction, How: *x.how, Rate: x.rate, Epochs: a.Epochs, MiniBatch: a.MiniBatch,
		Aggregation: a.LossAggregation, Width: s.width}
	out := &Influences{Mini: a.Epochs * len(train.MiniBatches(s.Batch.Len(), a.MiniBatch))}
	scores := map[string][]float64{}
	for row, e := range s.Episodes {
		name := x.Units(e)
		at := slices.IndexFunc(out.Units, func(m Moving) bool { return m.Name == name })
		if at < 0 {
			at = len(out.Units)
			out.Units, in.Units = append(out.Units, Moving{Name: name}), append(in.Units, nil)
		}
		in.Units[at] = append(in.Units[at], row)
		out.Units[at].Episodes++
		scores[name] = append(scores[name], e.Score)
	}
	without, update, err := in.Measure(ctx)
	if err != nil {
		return nil, err
	}
	out.Update = update
	for i := range out.Units {
		m := &out.Units[i]
		m.Without, m.Score = without[i], statistics.Mean(scores[m.Name])
		m.Spread = statistics.PopulationDeviation(scores[m.Name])
	}
	return out, nil
}
