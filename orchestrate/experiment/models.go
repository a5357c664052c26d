package experiment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"gyre/internal/atomicfile"
	"gyre/internal/nearest"
	"gyre/orchestrate/config"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/rundir"
	"gyre/torch"
)

// Model is a model before its weights are loaded: where it lies and what its config.json says.
type Model struct {
	Dir    string               // of an adapter: its base's
	Shape  torch.ModelConfig    // with the head that it is opened for
	Trains checkpoint.Trainable // what of it learns where it is trained

	// merged is the directory of an adapter that is added to the weights, as none lies beside them that is the same.
	merged   string
	together bool // several ranks sample from it together, where there are some
}

// Wished is what a configuration says of what computes its models: the type may be auto.
func Wished(c *config.Config) torch.Placement {
	return torch.Placement{Device: c.Model.Device, Compute: torch.Compute(c.Model.DType),
		Int8: c.Model.BaseDType == "int8", Longest: int64(c.Rollout.MaxLength)}
}

// Placement says what computes an experiment's models.
func Placement(c *config.Config) torch.Placement {
	on := Wished(c)
	if settled, _, err := on.Settled(); err == nil {
		return settled // for plans: whoever loads models has settled the configuration and told of it
	}
	return on
}

// Settle chooses the type of the arithmetic where it is auto: that of the run which a checkpoint or model belongs to
// ([rundir.ArithmeticOf]), or else the faster one. why is told to people; "" where the type was given.
func Settle(on torch.Placement, from string) (settled torch.Placement, why string, err error) {
	if on.Compute != torch.ComputeAuto {
		return on, "", nil
	}
	if dtype, run := rundir.ArithmeticOf(from); dtype == string(torch.ComputeF32) ||
		dtype == string(torch.ComputeBF16) {
		on.Compute = torch.Compute(dtype)
		return on, "as in " + run, nil
	}
	return on.Settled()
}

// OpenModel reads what a Hugging Face directory says of its model. A directory that is not there gives an error that
// matches fs.ErrNotExist and says where models come from.
func OpenModel(dir string, head torch.Head, on torch.Placement) (*Model, error) {
	base, err := checkpoint.BaseOf(dir)
	if err != nil {
		return nil, err
	}
	if base != "" {
		return openAdapter(dir, base, head, on)
	}
	c, err := checkpoint.ReadConfig(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", err, HowToGet(dir))
	}
	if err != nil {
		return nil, err
	}
	if err := c.Settle(on.Longest); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m := &Model{Dir: dir, Shape: c.ModelConfig, Trains: checkpoint.AllWeights{}}
	m.Shape.Head, m.Shape.Placement = head, on
	if head == torch.HeadValue {
		m.Shape.TieEmbeddings = false // a value model has no head to tie
	}
	return m, nil
}

// HowToGet says what to run where a model is missing.
func HowToGet(dir string) string {
	if strings.Contains(strings.ToLower(filepath.Base(dir)), "smollm2") {
		return "`bash scripts/get-smollm2.sh` downloads SmolLM2-135M-Instruct to models/smollm2-135m-instruct"
	}
	if filepath.Base(dir) == "demo-policy" {
		return "`make demo` makes it, and fine-tunes and trains it"
	}
	if run, ok := strings.CutSuffix(strings.TrimSuffix(dir, "/actor"), "/best"); ok {
		return fmt.Sprintf("`gyre sft` with run.name=%s leaves its best epoch there", filepath.Base(run))
	}
	if run, step, ok := strings.Cut(dir, "/global_step_"); ok {
		step, _, _ = strings.Cut(step, "/")
		return fmt.Sprintf("`gyre train` or `gyre sft` saves it in step %s of the run %s", step, run)
	}
	if near := nearest.Hint(dir, neighbours(dir)); near != "" {
		return "no such model" + near
	}
	name, options := "ORG/NAME", " (the first lines of an example configuration show its options)"
	if base := filepath.Base(dir); strings.HasPrefix(base, "Qwen") {
		name, options = "Qwen/"+base, ""
	}
	return fmt.Sprintf("`gyre model init %s` makes a small untrained policy there%s, `gyre model pull %s %s` "+
		"downloads one", dir, options, name, dir)
}

// neighbours are the models in the folder in which one was looked for.
func neighbours(dir string) (out []string) {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(dir), "*",
		"config.json")) // a folder with pattern characters has none
	for _, path := range found {
		out = append(out, filepath.Dir(path))
	}
	return out
}

// TokenizerOf is the directory that a checkpoint's tokenizer is read from: its own, or the given one where it has none.
func TokenizerOf(found checkpoint.Models, otherwise string) string {
	if atomicfile.Exists(found.Actor, "tokenizer.json") {
		return found.Actor
	}
	return otherwise
}

// Beside tells whether the model is the base in a directory, or an adapter beside it.
func (m *Model) Beside(base string) bool { return m.Dir == base && m.merged == "" }

// Load reads the weights. notes are what is worth telling: a value head that starts from zero, say.
func (m *Model) Load() (model *torch.Model, notes []string, err error) {
	return m.LoadOver(checkpoint.Ranks{})
}

// LoadOver is Load over the processes of a run.
func (m *Model) LoadOver(ranks checkpoint.Ranks) (model *torch.Model, notes []string, err error) {
	if m.merged != "" {
		return checkpoint.LoadMerged(m.Dir, m.merged, m.placed(m.Shape.Frozen, ranks), ranks)
	}
	if m.Trains.Base() == "" {
		return checkpoint.Load(m.Dir, m.Shape.Head, m.placed(m.Shape.Frozen, ranks), ranks)
	}
	base, notes, err := m.LoadBase(ranks)
	if err != nil {
		return nil, nil, err
	}
	defer base.Close()
	model, err = m.Trains.Attach(base, m.Shape.Head, ranks)
	return model, notes, err
}

// placed says what computes the model. Ranks that sample together cut their parts from whole parameters, which stay
// there, or from shards.
func (m *Model) placed(frozen bool, ranks checkpoint.Ranks) torch.Placement {
	on := m.Shape.Placement
	on.Frozen = frozen && (!m.together || ranks.InShards() || ranks.Group == nil)
	return on
}

// LoadBase reads the weights that adapters of Dir lie beside. They only sample and score, and are whole on every
// process unless the weights of all models are in shards.
func (m *Model) LoadBase(ranks checkpoint.Ranks) (base *torch.Model, notes []string, err error) {
	on := m.placed(true, ranks)
	if !ranks.InShards() {
		ranks = checkpoint.Ranks{}
	}
	return checkpoint.Load(m.Dir, torch.HeadLM, on, ranks)
}

// StopIDs are the ids at which transformers' generate stops: eos_token_id of generation_config.json, or else of
// config.json. Where both say nothing, those of the tokenizer, if there is one.
func (m *Model) StopIDs(tokenizer *chat.Tokenizer) ([]int32, error) {
	ids, err := chat.ModelStopIDs(m.Dir)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 && tokenizer != nil {
		return tokenizer.StopIDs(), nil
	}
	var stop []int32
	for _, id := range ids {
		// Ids outside the vocabulary (configurations of shrunken models have such) never occur.
		if id >= 0 && int64(id) < m.Shape.VocabSize {
			stop = append(stop, id)
		}
	}
	return stop, nil
}

// Temperature of the trained policy's log-probs: the rollout's, or 1 when rollouts are greedy.
func Temperature(c *config.Config) float64 {
	if c.Rollout.Temperature <= 0 {
		return 1
	}
	return c.Rollout.Temperature
}

// Loss is the configured one; its KL term is off when the KL penalty sits in the reward or its coefficient is
// zero.
func Loss(c *config.Config) torch.PolicyLoss {
	a, g := c.Actor, c.Algorithm
	loss := torch.PolicyLoss{
		Task: torch.NewLoss(a.Loss, a.Constants()), Temperature: Temperature(c), EntropyCoef: g.EntropyCoef,
		BalanceCoef: g.RouterAuxLossCoef,
	}
	if g.KLCoef != 0 && g.KLIn == "loss" {
		name, straight := g.KLEstimator, false
		if name[len(name)-1] == '+' {
			name, straight = name[:len(name)-1], true
		}
		loss.KL = map[string]torch.KLEstimator{"k1": torch.KLK1, "abs": torch.KLAbs, "k2": torch.KLK2,
			"k3": torch.KLK3}[name]
		loss.KLStraightThrough, loss.KLCoef = straight, g.KLCoef
		if g.KLTopK > 0 {
			loss.KL, loss.KLStraightThrough = torch.KLSupport, false
		}
	}
	return loss
}
