package trainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/advantage"
	"gyre/orchestrate/analysis"
	"gyre/orchestrate/checkpoint"
	"gyre/orchestrate/config"
	"gyre/orchestrate/episode"
	"gyre/orchestrate/metrics"
	"gyre/orchestrate/rollout"
	"gyre/orchestrate/rundir"
	"gyre/torch"
)

// Probe is one gradient analysis of one checkpoint.
type Probe struct {
	Checkpoint string // a run directory, a global_step_N folder or a Hugging Face directory; model.path when empty
	Critic     string // the same for the critic; the checkpoint's own when empty
	Rollouts   string // JSONL of episodes to analyse instead of playing
	Step       int    // whose random draws are used, or whose episodes; 0 = the episodes', or the checkpoint's
	Validate   bool   // play the validation set first
	Output     string // folder for metrics.jsonl and the folder analysis; "" writes nothing
	Console    *metrics.Console
}

// Probed is what a probe found.
type Probed struct {
	Step   int
	Values map[string]any // as in metrics.jsonl
	Text   string         // tables for people
}

// Analyze measures the gradients of a checkpoint as a training step would after its critic update, and changes nothing. Episodes
// are played as the run plays them at that step, or read from a file. Old log-probs are the file's where every episode has them, and the
// policy's own otherwise; advantages, filter and buckets are the configuration's.
func Analyze(ctx context.Context, c *config.Config, p Probe) (Probed, error) {
	t, err := openProbe(c, p)
	if err != nil {
		return Probed{}, err
	}
	defer t.close()
	out := newAnalysed(c.Analysis.Profile)
	if p.Validate {
		if err := t.validateProbe(ctx, out); err != nil {
			return Probed{}, err
		}
	}
	episodes := t.episodes
	if episodes == nil {
		if episodes, err = t.playProbe(ctx, out); err != nil {
			return Probed{}, err
		}
	}
	if c.Components.Enabled || hasParts(episodes) {
		t.partsStep = t.step
		if p.Output != "" {
			t.partsFolder = filepath.Join(p.Output, componentFolder(c))
		}
	}
	if err := t.analyseEpisodes(ctx, episodes, c.Analysis.LogPrefilter && (c.Separate() || p.Rollouts != ""), out); err != nil {
		return Probed{}, fmt.Errorf("gradient analysis: %w", err)
	}
	if out.text == "" {
		return Probed{}, fmt.Errorf("gradient analysis: the filter kept none of %d episodes: nothing was analysed; analysis.log_prefilter=true analyses them "+
			"before the filter, filter.strategy=none keeps all", len(episodes))
	}
	if err := t.componentFiles.Wait(); err != nil {
		return Probed{}, err
	}
	result := Probed{Step: t.step, Values: out.values(), Text: out.text}
	return result, t.write(p.Output, result)
}

// probe is a trainer that cannot train: models without optimizers, no run directory.
type probe struct {
	*Trainer
	step     int
	episodes []*episode.Episode
}

func openProbe(c *config.Config, o Probe) (p *probe, err error) {
	copied := *c
	half := &probe{Trainer: &Trainer{config: &copied, console: o.Console, log: &rundir.Log{Console: o.Console}}}
	p = half
	defer func() {
		if err != nil {
			half.close()
		}
	}()
	if _, err := setThreads(c.Run.Threads); err != nil {
		return nil, err
	}
	path := o.Checkpoint
	if path == "" {
		path = c.Model.Path
	}
	from, notes, err := checkpoint.Find(path, rundir.CheckpointPrefix)
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		p.log.Warnf("passed over: %v", note)
	}
	p.state.KL = advantage.Controller{Coef: c.Algorithm.KLCoef}
	if from.Root != "" {
		if err := checkpoint.ReadState(from.Root, &p.state); err != nil {
			return nil, err
		}
	}
	p.step = max(p.state.Step, 1)
	if o.Rollouts != "" {
		if err := p.read(o.Rollouts, o.Step); err != nil {
			return nil, err
		}
	}
	if o.Step > 0 {
		p.step = o.Step
	}
	if o.Output != "" {
		if err := p.openOutput(o.Output); err != nil {
			return nil, err
		}
	}
	p.log.Infof("analysing %s as of step %d", from.Actor, p.step)
	if err := p.loadProbed(from, o.Critic); err != nil {
		return nil, err
	}
	if p.episodes != nil && !o.Validate {
		return p, nil
	}
	if exists(from.Actor, "tokenizer.json") {
		copied.Model.Path = from.Actor
	}
	return p, p.openSampler()
}

// loadProbed loads the policy and, where the configuration needs them, a reference and a critic.
func (p *probe) loadProbed(from checkpoint.Models, critic string) error {
	c := p.config
	model, err := p.load(from.Actor, torch.HeadLM)
	if err != nil {
		return fmt.Errorf("loading the policy: %w", err)
	}
	p.actor = &learner{model: model}
	if c.Algorithm.KLCoef != 0 {
		path := c.Model.Reference
		if path == "" {
			path = c.Model.Path
		}
		if p.reference, err = p.load(path, torch.HeadLM); err != nil {
			return fmt.Errorf("loading the KL reference: %w", err)
		}
	}
	if !c.Algorithm.UsesCritic() {
		return nil
	}
	dir := from.Critic
	if critic != "" {
		other, _, err := checkpoint.Find(critic, rundir.CheckpointPrefix)
		if err != nil {
			return fmt.Errorf("the critic: %w", err)
		}
		if dir = other.Critic; dir == "" {
			dir = other.Actor
		}
	}
	if dir == "" {
		if dir = c.Critic.Path; dir == "" {
			dir = from.Actor
		}
		p.log.Warnf("the checkpoint has no critic: values are those of %s", dir)
	}
	if model, err = p.load(dir, torch.HeadValue); err != nil {
		return fmt.Errorf("loading the critic: %w", err)
	}
	p.critic = &learner{model: model}
	return nil
}

func (p *probe) close() {
	if p.sampler != nil {
		p.sampler.close()
	}
	if p.actor != nil {
		p.actor.model.Close()
	}
	if p.critic != nil {
		p.critic.model.Close()
	}
	if p.reference != nil {
		p.reference.Close()
	}
	if p.logger != nil {
		p.logger.Close()
	}
}

// read takes the episodes of one step from a file.
func (p *probe) read(path string, step int) error {
	episodes, err := episode.ReadFile(path)
	if err != nil {
		return err
	}
	var steps []int
	for _, e := range episodes {
		if !slices.Contains(steps, e.Step) {
			steps = append(steps, e.Step)
		}
	}
	slices.Sort(steps)
	only := steps[0]
	switch {
	case len(steps) > 1 && !slices.Contains(steps, step):
		return fmt.Errorf("%s holds episodes of the steps %v: choose one with --step", path, steps)
	case len(steps) > 1:
		only = step
	case only > 0 && step > 0 && only != step:
		return fmt.Errorf("%s holds episodes of step %d, not of step %d", path, only, step)
	}
	if only > 0 {
		p.step = only
	}
	p.episodes = slices.DeleteFunc(episodes, func(e *episode.Episode) bool { return e.Step != only })
	p.replay = &replay{path: path, steps: [][]*episode.Episode{p.episodes}}
	return nil
}

// playProbe plays what the run would: its separate analysis batch of the step, or its training batch.
func (p *probe) playProbe(ctx context.Context, out *analysed) ([]*episode.Episode, error) {
	if p.config.Separate() {
		return p.playAnalysis(ctx, p.step, out)
	}
	episodes, _, err := p.play(ctx, rollout.TrainingPlan(p.config, p.step), fmt.Sprintf("step %d rollout", p.step))
	return episodes, err
}

func (p *probe) validateProbe(ctx context.Context, out *analysed) error {
	episodes, _, err := p.play(ctx, rollout.ValidationPlan(p.config, p.step), "validation")
	if err != nil {
		return err
	}
	var text strings.Builder
	summary := rollout.Summarize(episodes)
	for name, v := range summary {
		if !strings.Contains(name, "/") {
			name = "all/" + name
		}
		out.numbers["val-env/"+name] = v
		if strings.HasSuffix(name, "/success") {
			fmt.Fprintf(&text, "validation: %s = %.3f\n", name, v)
		}
	}
	fmt.Fprint(p.console, text.String())
	return nil
}

// openOutput prepares a folder that gyre plot can read. Several probes may share it in the order of their steps; a run's own may not be used.
func (p *probe) openOutput(dir string) error {
	if exists(dir, "run.json") {
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
		if record.Step >= p.step {
			return fmt.Errorf("%s already holds step %d: remove it, or choose another folder for step %d", path, record.Step, p.step)
		}
	}
	var err error
	p.logger, err = metrics.Open(path)
	return err
}

func (p *probe) write(dir string, result Probed) error {
	if dir == "" {
		return nil
	}
	if err := analysis.WriteFiles(filepath.Join(dir, "analysis"), result.Step, result.Values); err != nil {
		return err
	}
	return p.logger.Log(result.Step, result.Values)
}

func exists(elements ...string) bool {
	_, err := os.Stat(filepath.Join(elements...))
	return err == nil
}
