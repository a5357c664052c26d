package checkpoint

import (
	"context"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Trainable is the set of parameters that the training of a model changes. Which one it is, is decided where the model
// is opened (package experiment); everybody else asks the set.
type Trainable interface {
	// Count is how many numbers it has in a model of a shape.
	Count(shape torch.ModelConfig) int64
	// Base is the directory of the model that the set lies beside and that training leaves as it is, so that other sets
	// may share it; "" where the set is in the model itself.
	Base() string
	// Attach makes the model that has the set of its base, on the processes of a run. A set in the model itself adds
	// nothing: the model is the base.
	Attach(base *torch.Model, head torch.Head, ranks Ranks) (*torch.Model, error)
	// Reload fills a model in memory, which has the set, with the values in dir, a checkpoint of it.
	Reload(m *torch.Model, dir string) error
	// Save writes the set of a model into the existing directory dir, so that a model can be opened there. Of a model
	// over ranks all call it, those that write nothing with an empty dir.
	Save(ctx context.Context, m *torch.Model, dir string) error
}

// AllWeights is the set of all parameters of a model.
type AllWeights struct {
	// Source is the directory that token ids (in config.json) and the tokenizer's files are saved from; "" for neither.
	Source string
	DType  torch.DType // that they are saved as
}

// Count implements Trainable. A tied head counts once.
func (AllWeights) Count(shape torch.ModelConfig) int64 {
	return Config{ModelConfig: shape}.Count(shape.Head)
}

// Base implements Trainable.
func (AllWeights) Base() string { return "" }

// Attach implements Trainable.
func (AllWeights) Attach(base *torch.Model, _ torch.Head, _ Ranks) (*torch.Model, error) {
	return base, nil
}

// Reload implements Trainable.
func (AllWeights) Reload(m *torch.Model, dir string) error {
	found, err := open(dir, m.Config.Head)
	if err != nil {
		return err
	}
	defer found.Weights.Close()
	return fill(m, found.Entries)
}

// Save implements Trainable, in Hugging Face's layout.
func (w AllWeights) Save(ctx context.Context, m *torch.Model, dir string) error {
	c := Config{ModelConfig: m.Config, DType: weights.DType(w.DType)}
	if w.Source != "" {
		from, err := hf.ReadConfig(w.Source)
		if err != nil {
			return err
		}
		c.BOS, c.EOS, c.PAD = from.BOS, from.EOS, from.PAD
		c.From(from)
	}
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	g := gatherer{ctx: ctx, group: m.Group()}
	g.addAll(parameters, "", c.DType, m.Shard)
	if err := g.write(dir != "", func() error { return hf.Save(dir, c, g.list, hf.ShardSize) }); err != nil ||
		dir == "" || w.Source == "" {
		return err
	}
	return hf.CopyCompanions(dir, w.Source)
}
