package checkpoint

import (
	"fmt"
	"runtime/debug"

	"gyre/orchestrate/checkpoint/hf"
	"gyre/torch"
)

// Loaded is a model read from a directory. The caller closes Model.
type Loaded struct {
	Model  *torch.Model
	Config Config
	Notes  []string // what the caller may want to tell: a value head that starts from zero, a head that is not tied after all
}

// LoadModel reads the model of a Hugging Face directory with the given head onto a device; see [Load].
func LoadModel(dir string, head torch.Head, on torch.Placement) (*torch.Model, error) {
	loaded, err := Load(dir, head, on)
	return loaded.Model, err
}

// Load reads a Hugging Face directory: safetensors or torch.save files, sharded or not, in any float type. A value
// head (the critic's) is score.weight and score.bias; from a language model it starts from zero. Tensors that are
// missing, too many or misshapen are listed in one error with their files; the actor of a checkpoint is verified first.
func Load(dir string, head torch.Head, on torch.Placement) (Loaded, error) {
	if err := verifyPart(dir); err != nil {
		return Loaded{}, err
	}
	c, err := hf.ReadConfig(dir)
	if err != nil {
		return Loaded{}, err
	}
	w, err := hf.OpenWeights(dir)
	if err != nil {
		return Loaded{}, err
	}
	defer w.Close()
	c, entries, notes, err := hf.Match(dir, c, headOf(head), w)
	if err != nil {
		return Loaded{}, err
	}
	config := Config{Config: c, Model: modelConfig(c, head)}
	config.Model.Placement = on
	m, err := torch.NewModel(config.Model)
	if err != nil {
		return Loaded{}, fmt.Errorf("%s: %w", dir, err)
	}
	if err := fill(m, entries); err != nil {
		m.Close()
		return Loaded{}, err
	}
	return Loaded{Model: m, Config: config, Notes: notes}, nil
}

// fill copies tensors into the model's parameters, one at a time through one buffer.
func fill(m *torch.Model, entries []hf.Entry) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer torch.CloseParameters(parameters)
	byName := make(map[string]hf.Entry, len(entries))
	for _, e := range entries {
		byName[e.Name] = e
	}
	// The buffer grows to the largest tensor, the embedding, and nothing would collect it while libgyre does the work.
	defer debug.FreeOSMemory()
	var buffer []byte
	for _, p := range parameters {
		e, ok := byName[p.Name]
		if !ok {
			return fmt.Errorf("checkpoint: the model has a parameter %s that no config.json implies", p.Name)
		}
		delete(byName, p.Name)
		if e.Tensor == nil { // zero, as the model was made
			continue
		}
		if buffer, err = e.Tensor.Load(buffer); err != nil {
			return err
		}
		if err := p.Tensor.CopyIn(dtypes[e.Tensor.DType], e.Tensor.Shape, e.Tensor.Strides, buffer); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", e.Tensor.File, p.Name, err)
		}
	}
	for name := range byName {
		return fmt.Errorf("checkpoint: the model has no parameter %s", name)
	}
	return m.Touch()
}
