// Package experiment opens what a configuration names: the models, their tokenizer and chat template, the threads that
// compute, and how much memory a run with them takes. Every command opens them here, so that one rule says where a
// checkpoint's policy lies, whether its files are what was saved, and which sizes fit together.
//
//	checkpoint.Find ─▶ Open (checks, no weights) ─▶ Model.Load
//	                       │
//	                       └─▶ PlanMemory (what `gyre train --dry-run` prints)
//
// Open reads everything but weights: what it refuses, a run would refuse at its start.
package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"

	"gyre/internal/regular"
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// Parts says what a command needs of an experiment, and what it takes from elsewhere than its configuration says.
type Parts struct {
	Learn     bool   // weights change: gradients and optimizers are held
	Critic    bool   // the value network, where the advantage estimator has one
	Reference bool   // the KL reference, where something uses it
	Analyse   bool   // the gradient analysis
	Play      bool   // tokenizer, template, sampler
	Show      bool   // tokenizer and template: experts play, the policy does not
	Policy    string // directory of the policy; model.path when empty
	Adapter   string // directory of an adapter beside that policy; "" for none
	Values    string // directory of the critic; critic.path, or that of the policy, when empty
	Tokenizer string // directory of the tokenizer; model.path when empty: training does not change it
	Ranks     int    // processes that share the work; 0 = one
}

// Continue takes the models that learn from a checkpoint, "" for none.
func (p Parts) Continue(from string) Parts {
	if from != "" {
		p.Policy, p.Values = filepath.Join(from, "actor"), filepath.Join(from, "critic")
	}
	return p
}

// Experiment is an opened configuration: everything but weights.
type Experiment struct {
	Parts     Parts
	Policy    *Model
	Critic    *Model // nil unless needed
	Reference *Model // nil unless needed
	Tokenizer *chat.Tokenizer
	Config    *config.Config
}

// With is the experiment under another configuration of the same models, over so many ranks: for plans.
func (e *Experiment) With(c *config.Config, ranks int) *Experiment {
	other := *e
	other.Config, other.Parts.Ranks = c, ranks
	return &other
}

// Open reads and checks the parts of a configuration. The error lists everything that does not fit together.
func Open(c *config.Config, parts Parts) (*Experiment, error) {
	e := &Experiment{Parts: parts, Config: c}
	policy, values := cmp.Or(parts.Policy, c.Model.Path), cmp.Or(parts.Values, c.Critic.Path, c.Model.Path)
	on := Placement(c)
	var problems []error
	bad := map[string]bool{} // directories that were reported
	read := func(what, dir string, head torch.Head, to **Model) {
		m, err := OpenModel(dir, head, on)
		// a reference that is named is that model, whatever adapter the policy begins with
		named := to == &e.Reference && c.Model.Reference != ""
		if start := c.LoRA.Adapter; start != "" && dir == c.Model.Path && err == nil && !named {
			m, err = openAdapter(start, dir, head, on)
		}
		if err != nil && !bad[dir] {
			problems = append(problems, fmt.Errorf("%s: %w", what, err))
		}
		bad[dir] = err != nil
		*to = m
	}
	read("the policy", policy, torch.HeadLM, &e.Policy)
	if parts.Adapter != "" && e.Policy != nil {
		adapted, err := e.Policy.WithAdapter(parts.Adapter)
		if err != nil {
			problems = append(problems, fmt.Errorf("the adapter: %w", err))
		} else {
			e.Policy = adapted
		}
	}
	if parts.Critic && c.Algorithm.UsesCritic() {
		read("the critic", values, torch.HeadValue, &e.Critic)
	}
	if parts.Reference && c.Algorithm.KLCoef != 0 && !c.Model.RemoteReference() {
		read("the KL reference", cmp.Or(c.Model.Reference, c.Model.Path), torch.HeadLM, &e.Reference)
	}
	if len(problems) == 0 && parts.Learn {
		problems = append(problems, e.train()...)
	}
	if len(problems) == 0 {
		problems = append(problems, e.checkSizes()...)
	}
	if (parts.Play || parts.Show) && e.Policy != nil {
		if err := e.openTokenizer(cmp.Or(parts.Tokenizer, c.Model.Path)); err != nil {
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	e.Policy.Shape.Frozen = !parts.Learn && !parts.Analyse
	e.Policy.together = parts.Play && c.Engine.TensorParallel > 1
	if e.Reference != nil {
		e.Reference.Shape.Frozen = true // it only scores
	}
	return e, nil
}

// openTokenizer loads the tokenizer of a directory, with the chat template that the configuration may put in place of
// its own, and sees that it renders and belongs to the models.
func (e *Experiment) openTokenizer(dir string) error {
	if err := checkpoint.VerifySettings(dir); err != nil {
		return err
	}
	var err error
	if e.Tokenizer, err = chat.Load(dir); err != nil {
		return fmt.Errorf("loading the tokenizer: %w", err)
	}
	if path := e.Config.Model.ChatTemplate; path != "" {
		source, err := regular.Read(path)
		if err == nil {
			err = e.Tokenizer.SetTemplate(string(source))
		}
		if err != nil {
			return fmt.Errorf("model.chat_template: %s: %w", path, err)
		}
	}
	for who, m := range e.models() {
		if have := m.Shape.VocabSize; int64(e.Tokenizer.VocabSize()) > have {
			return fmt.Errorf("the tokenizer of %s has %d tokens but the vocabulary of the %s in %s is %d: they do "+
				"not belong together", dir, e.Tokenizer.VocabSize(), who, m.Dir, have)
		}
	}
	if !e.Tokenizer.HasTemplate() {
		return errors.New("the model has no chat template: set model.chat_template to a Jinja file")
	}
	if len(e.Tokenizer.StopIDs()) == 0 {
		return errors.New("the tokenizer names no end-of-sequence token, so no reply could end before max_tokens")
	}
	if _, err := e.Tokenizer.EncodeMessages([]chat.Message{{Role: "system", Content: "a"},
		{Role: "user", Content: "b"}}, true); err != nil {
		return fmt.Errorf("the chat template of %s: %w", cmp.Or(e.Config.Model.ChatTemplate, dir), err)
	}
	return nil
}

// models are those that the experiment has.
func (e *Experiment) models() iter.Seq2[string, *Model] {
	return func(yield func(string, *Model) bool) {
		for _, x := range []struct {
			who   string
			model *Model
		}{{"policy", e.Policy}, {"critic", e.Critic}, {"KL reference", e.Reference}} {
			if x.model != nil && !yield(x.who, x.model) {
				return
			}
		}
	}
}

// CheckWeights sees that the files of the models hold every tensor in its shape, as loading would. Directories
// without any weights, which may come later, are listed.
func (e *Experiment) CheckWeights() (absent []string, err error) {
	var problems []error
	for who, m := range e.models() {
		switch err := checkpoint.Check(m.Dir, m.Shape.Head); {
		case errors.Is(err, fs.ErrNotExist):
			if !slices.Contains(absent, m.Dir) {
				absent = append(absent, m.Dir)
			}
		case err != nil:
			problems = append(problems, fmt.Errorf("the %s: %w", who, err))
		}
	}
	return absent, errors.Join(problems...)
}

// checkSizes compares the models with one another and with the limits of the configuration.
func (e *Experiment) checkSizes() (problems []error) {
	for who, m := range e.models() {
		if n := m.Shape.MaxPositions; (e.Parts.Play || e.Parts.Show) && int64(e.Config.Rollout.MaxLength) > n {
			problems = append(problems,
				fmt.Errorf("rollout.max_length = %d, but the %s in %s has %d positions: set rollout.max_length=%d or "+
					"less", e.Config.Rollout.MaxLength, who, m.Dir, n, n))
		}
	}
	if k := int64(e.Config.Algorithm.KLTopK); e.Reference != nil && k > 0 {
		if n := min(e.Policy.Shape.VocabSize, e.Reference.Shape.VocabSize); k > n {
			problems = append(problems, fmt.Errorf("algorithm.kl_top_k = %d, but the vocabulary of the policy in %s "+
				"and the KL reference in %s has %d tokens: expected as many or less", k, e.Policy.Dir,
				e.Reference.Dir, n))
		}
	}
	if e.Parts.Play {
		problems = append(problems, e.checkEngine()...)
	}
	return problems
}

// kvPage is how many positions of a sequence are kept together: csrc/kernels/attention.h.
const kvPage = 16

// checkEngine sees that a budget of keys and values holds the longest episode that may be played.
func (e *Experiment) checkEngine() []error {
	budget, m, n := int64(e.Config.Engine.KVMiB)<<20, e.Policy.Shape, e.Config.Engine.TensorParallel
	if n > 1 {
		if err := m.CheckTensorParallel(n); err != nil {
			return []error{fmt.Errorf("engine.tensor_parallel = %d, the policy in %s: %w", n, e.Policy.Dir, err)}
		}
		m = headsOfOne(m, n)
	}
	pages := (int64(e.Config.Rollout.MaxLength) + kvPage - 1) / kvPage
	if need := pages * kvPage * kvFloats(m) * elementBytes(e.Config); budget > 0 && need > budget {
		return []error{fmt.Errorf("engine.kv_mib = %d, but the keys and values of one episode of rollout.max_length "+
			"= %d tokens take %d MiB: raise it, or set it to 0",
			e.Config.Engine.KVMiB, e.Config.Rollout.MaxLength, (need+1<<20-1)>>20)}
	}
	return nil
}
