package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/loop/source"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
)

// Probe is one gradient analysis of one checkpoint.
type Probe struct {
	Checkpoint string // a run directory, a global_step_N folder or a Hugging Face directory; model.path when empty
	Critic     string // the same for the critic; the checkpoint's own when empty
	Rollouts   string // JSONL of episodes to analyse instead of playing
	// Step is the one whose random draws are used, or whose episodes; 0 = the episodes', or the checkpoint's. Of a
	// run that has kept its checkpoint, that is taken instead of the newest.
	Step     int
	Validate bool   // play the validation set first
	Output   string // folder for metrics.jsonl and the folder analysis; "" writes nothing
	Console  *metrics.Console
	World    *ranks.World // the processes that measure together; [ranks.Alone] unless it is given
}

// Probed is what a probe found.
type Probed struct {
	Step   int
	Values map[string]any // as in metrics.jsonl
	Text   string         // tables for people
}

// Analyze measures the gradients of a checkpoint as a training step would after its critic update, and changes
// nothing. Episodes are played as the run plays them at that step, or read from a file. Old log-probs are the file's
// where every episode has them, and the policy's own otherwise; advantages, filter and buckets are the
// configuration's.
func Analyze(ctx context.Context, c *config.Config, o Probe) (Probed, error) {
	saves := o.Output != ""
	o.World = cmp.Or(o.World, ranks.Alone())
	if !o.World.Writes() {
		o.Output = ""
	}
	p, err := openProbe(ctx, c, o)
	if err != nil {
		return Probed{}, err
	}
	defer p.close()
	out := newAnalysed(c)
	out.line["trainer/gradient_analysis_only"], out.line["trainer/exited_after_gradient_analysis"] = 1.0, 1.0
	if o.Validate {
		if err := p.validate(ctx, out.line); err != nil {
			return Probed{}, err
		}
	}
	if err := p.measure(ctx, o, saves, out); err != nil {
		return Probed{}, fmt.Errorf("gradient analysis: %w", err)
	}
	found := Probed{Step: p.number, Values: out.line, Text: out.text}
	if o.Output == "" {
		return found, nil
	}
	if err := gradients.WriteFiles(filepath.Join(o.Output, "analysis"), found.Step, found.Values); err != nil {
		return found, err
	}
	return found, p.logger.Log(found.Step, found.Values)
}

// probe is one analysis at work: models without optimizers, no run directory.
type probe struct {
	bucketObserver
	number int                // of the step
	given  []*episode.Episode // to analyse; nil until they are read or played
	from   source.Provenance  // of them
	logger *metrics.Logger    // nil where nothing is written
}

func openProbe(ctx context.Context, c *config.Config, o Probe) (*probe, error) {
	e := session.New(c, o.Console, o.World)
	p := &probe{bucketObserver: bucketObserver{Session: e, rollouts: &session.Rollouts{Session: e},
		preparation: &preparation{Session: e}, exact: new(bool)}}
	if err := p.open(ctx, o); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *probe) close() {
	p.Session.Close()
	if p.logger != nil {
		p.logger.Close()
	}
}

// open reads or finds everything that the probe names and loads the models.
func (p *probe) open(ctx context.Context, o Probe) error {
	c := p.Config
	if o.Checkpoint != "" && o.Step > 0 {
		kept := filepath.Join(o.Checkpoint, fmt.Sprintf("%s%d", rundir.CheckpointPrefix, o.Step))
		if atomicfile.Exists(kept, checkpoint.ManifestName) {
			o.Checkpoint = kept
		}
	}
	from, err := p.Locate(ctx, o.Checkpoint)
	if err != nil {
		return err
	}
	var state session.State
	if from.Root != "" {
		if err := checkpoint.ReadState(from.Root, &state); err != nil {
			return err
		}
	}
	var note string
	if p.preparation.penalty, note = state.Penalty(c.Algorithm); note != "" {
		p.Log.Warnf("%s", note)
	}
	p.number = max(state.Step, 1)
	if o.Rollouts != "" {
		if err := p.read(o.Rollouts, o.Step); err != nil {
			return err
		}
	}
	p.number = cmp.Or(o.Step, p.number)
	if o.Output != "" {
		if err := p.openOutput(o.Output); err != nil {
			return err
		}
	}
	p.Log.Infof("analysing %s as of step %d", from.Actor, p.number)
	parts := experiment.Parts{Critic: true, Reference: true, Analyse: true, Play: p.given == nil || o.Validate,
		Policy: from.Actor, Tokenizer: experiment.TokenizerOf(from, c.Model.Path)}
	if c.Algorithm.UsesCritic() {
		if parts.Values, err = p.locateCritic(ctx, from, o.Critic); err != nil {
			return err
		}
	}
	if _, err := p.Session.Open(ctx, parts, nil, nil); err != nil || p.Sampler == nil {
		return err
	}
	*p.exact, err = p.ProveExact(ctx, state.SamplerGap)
	return err
}

// locateCritic finds the value network: the one asked for, the checkpoint's own, or the configuration's.
func (p *probe) locateCritic(ctx context.Context, from checkpoint.Models, critic string) (string, error) {
	if critic != "" {
		other, err := p.Locate(ctx, critic)
		if err != nil {
			return "", fmt.Errorf("the critic: %w", err)
		}
		return cmp.Or(other.Critic, other.Actor), nil
	}
	if from.Critic != "" {
		return from.Critic, nil
	}
	dir := cmp.Or(p.Config.Critic.Path, from.Actor)
	p.Log.Warnf("the checkpoint has no critic: values are those of %s", dir)
	return dir, nil
}

// read takes the episodes of one step from a file.
func (p *probe) read(path string, step int) error {
	steps, numbers, err := source.ReadSteps(path)
	if err != nil {
		return err
	}
	only := numbers[0]
	switch {
	case len(numbers) > 1 && !slices.Contains(numbers, step):
		return fmt.Errorf("%s holds episodes of the steps %v: choose one with --step", path, numbers)
	case len(numbers) > 1:
		only = step
	case only > 0 && step > 0 && only != step:
		return fmt.Errorf("%s holds episodes of step %d, not of step %d", path, only, step)
	}
	if only > 0 {
		p.number = only
	}
	p.given, p.from = steps[only], source.Replayed
	return nil
}

// openOutput prepares a folder that gyre plot can read. Several probes may share it in the order of their steps; a
// run's own may not be used.
func (p *probe) openOutput(dir string) (err error) {
	if atomicfile.Exists(dir, "run.json") {
		return fmt.Errorf("%s is a training run's directory: choose another folder for the probe", dir)
	}
	path := filepath.Join(dir, "metrics.jsonl")
	for record, err := range metrics.Read(path) {
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if record.Step >= p.number {
			return fmt.Errorf("%s already holds step %d: remove it, or choose another folder for step %d", path,
				record.Step, p.number)
		}
	}
	p.logger, err = metrics.Open(path)
	return err
}

// validate plays the validation set.
func (p *probe) validate(ctx context.Context, line metrics.Line) error {
	found, _, err := p.rollouts.Validation(ctx, p.number, p.number)
	if err != nil {
		return err
	}
	delete(found, "timing_s/testing")
	maps.Copy(line, found)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if strings.HasSuffix(name, "/success") {
			fmt.Fprintf(p.Console, "validation: %s = %.3f\n", strings.TrimPrefix(name, "val-env/"), found[name])
		}
	}
	return nil
}

// measure analyses the episodes, by buckets and, where they have any, by the components of their reward. Where none are
// given it plays what the run would: its separate analysis batch of the step, or its training batch.
func (p *probe) measure(ctx context.Context, o Probe, saves bool, out *analysed) (err error) {
	c := p.Config
	switch {
	case p.given != nil:
	case c.Separate():
		p.given, err = p.play(ctx, p.number, out.line)
		p.from = p.playedNow()
	default:
		p.given, _, err = p.rollouts.Play(ctx, rollout.TrainingPlan(c, p.number, p.number),
			fmt.Sprintf("step %d rollout", p.number))
		p.from = p.playedNow()
	}
	if err != nil {
		return err
	}
	chosen, err := p.episodes(ctx, p.given, p.from, c.Analysis.LogPrefilter && (c.Separate() || o.Rollouts != ""), out)
	if err != nil {
		return err
	}
	if _, err := bucketsOf(c, chosen.Selection); err != nil {
		return err
	}
	if out.text == "" {
		return fmt.Errorf("the filter kept none of %d episodes: nothing was analysed; analysis.log_prefilter=true "+
			"analyses them before the filter, filter.strategy=none keeps all", len(p.given))
	}
	named := func(e *episode.Episode) bool { return len(e.Components) > 0 }
	if chosen.Batch.Len() == 0 || !c.Components.Enabled && !slices.ContainsFunc(p.given, named) {
		return nil
	}
	components := componentObserver{Session: p.Session, saves: saves}
	if o.Output != "" {
		components.dir = filepath.Join(o.Output, session.GradientFolder(c))
	}
	report, err := components.measure(ctx, p.number, chosen, out.line)
	if report != nil {
		out.text += "\n" + report.Console()
	}
	return err
}
