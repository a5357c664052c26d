package checkpoint

import (
	"errors"
	"fmt"
	"runtime/debug"

	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Config is a model directory's config.json, and the model it describes.
type Config struct {
	hf.Config
	Model torch.ModelConfig // with the head the directory was saved with
}

// ReadConfig reads dir/config.json in either spelling. The actor of a checkpoint is verified first: a changed byte may be one that no reader
// of the directory minds, or one that makes it complain of something else.
func ReadConfig(dir string) (Config, error) {
	if err := VerifyModel(dir); err != nil {
		return Config{}, err
	}
	c, err := hf.ReadConfig(dir)
	if err != nil {
		return Config{}, err
	}
	head := torch.HeadLM
	if c.Value {
		head = torch.HeadValue
	}
	return Config{Config: c, Model: modelConfig(c, head)}, nil
}

var families = map[hf.Family]torch.Family{hf.Llama: torch.Llama, hf.Qwen2: torch.Qwen2, hf.Qwen3: torch.Qwen3}

var ropes = map[string]torch.RopeScaling{hf.RopeDefault: torch.RopePlain, hf.RopeLinear: torch.RopeLinear, hf.RopeLlama3: torch.RopeLlama3}

func modelConfig(c hf.Config, head torch.Head) torch.ModelConfig {
	return torch.ModelConfig{Family: families[c.Family], Head: head,
		VocabSize: c.VocabSize, HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, NumLayers: c.NumLayers,
		NumHeads: c.NumHeads, NumKVHeads: c.NumKVHeads, HeadDim: c.HeadDim, MaxPositions: c.MaxPositions,
		RMSNormEps: c.RMSNormEps, RopeTheta: c.Rope.Theta, RopeScaling: ropes[c.Rope.Type], RopeFactor: c.Rope.Factor,
		RopeLowFreqFactor: c.Rope.LowFreqFactor, RopeHighFreqFactor: c.Rope.HighFreqFactor,
		RopeOriginalMaxPositions: c.Rope.OriginalMaxPositions,
		QKVBias:                  c.QKVBias, OutBias: c.OutBias, MLPBias: c.MLPBias, QKNorm: c.QKNorm,
		// A value model has no head to tie.
		TieEmbeddings: c.Tie && head == torch.HeadLM}
}

// describe is the inverse of modelConfig; token ids are left empty.
func describe(m torch.ModelConfig) (hf.Config, error) {
	c := hf.Config{VocabSize: m.VocabSize, HiddenSize: m.HiddenSize, IntermediateSize: m.IntermediateSize, NumLayers: m.NumLayers,
		NumHeads: m.NumHeads, NumKVHeads: m.NumKVHeads, HeadDim: m.HeadDim, MaxPositions: m.MaxPositions, RMSNormEps: m.RMSNormEps,
		Rope: hf.Rope{Theta: m.RopeTheta, Factor: m.RopeFactor, LowFreqFactor: m.RopeLowFreqFactor, HighFreqFactor: m.RopeHighFreqFactor,
			OriginalMaxPositions: m.RopeOriginalMaxPositions},
		QKVBias: m.QKVBias, OutBias: m.OutBias, MLPBias: m.MLPBias, QKNorm: m.QKNorm, Tie: m.TieEmbeddings, Value: m.Head == torch.HeadValue}
	for family, value := range families {
		if value == m.Family {
			c.Family = family
		}
	}
	for name, value := range ropes {
		if value == m.RopeScaling {
			c.Rope.Type = name
		}
	}
	if c.Family == "" || c.Rope.Type == "" {
		return c, fmt.Errorf("checkpoint: a model of family %d with rope scaling %d has no config.json", m.Family, m.RopeScaling)
	}
	return c, nil
}

func headOf(h torch.Head) hf.Head {
	if h == torch.HeadValue {
		return hf.ValueModel
	}
	return hf.LanguageModel
}

var dtypes = map[weights.DType]torch.DType{weights.F32: torch.F32, weights.F16: torch.F16, weights.BF16: torch.BF16, weights.F64: torch.F64}

func fileDType(d torch.DType) (weights.DType, error) {
	for file, memory := range dtypes {
		if memory == d {
			return file, nil
		}
	}
	return 0, fmt.Errorf("checkpoint: weights cannot be stored as %v: expected float32, bfloat16, float16 or float64", d)
}

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
	return LoadOver(dir, head, on, Ranks{})
}

// LoadOver is Load over the processes of a run, all of which call it.
func LoadOver(dir string, head torch.Head, on torch.Placement, ranks Ranks) (Loaded, error) {
	if err := VerifyModel(dir); err != nil {
		return Loaded{}, err
	}
	h := headOf(head)
	found, err := hf.Open(dir, &h)
	if err != nil {
		return Loaded{}, err
	}
	defer found.Weights.Close()
	config := Config{Config: found.Config, Model: modelConfig(found.Config, head)}
	config.Model.Placement = on
	m, err := ranks.model(config.Model)
	if err != nil {
		return Loaded{}, fmt.Errorf("%s: %w", dir, err)
	}
	if err := fill(m, found.Entries); err != nil {
		m.Close()
		return Loaded{}, err
	}
	return Loaded{Model: m, Config: config, Notes: found.Notes}, nil
}

// Reload fills a model that is in memory with the weights of a directory, a checkpoint of it.
func Reload(m *torch.Model, dir string) error {
	if err := VerifyModel(dir); err != nil {
		return err
	}
	h := headOf(m.Config.Head)
	found, err := hf.Open(dir, &h)
	if err != nil {
		return err
	}
	defer found.Weights.Close()
	return fill(m, found.Entries)
}

// Check is Load without the weights: it reads what files say of their tensors and finds everything that Load would refuse.
func Check(dir string, head torch.Head) error {
	if err := VerifyModel(dir); err != nil {
		return err
	}
	h := headOf(head)
	found, err := hf.Open(dir, &h)
	if err != nil {
		return err
	}
	return found.Weights.Close()
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
	for i, p := range parameters {
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
		if m.Sharded() {
			s, err := m.Shard(i)
			if err == nil {
				err = errors.Join(hold(s, e.Tensor, buffer), s.Tensor.Close())
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := p.Tensor.CopyIn(dtypes[e.Tensor.DType], e.Tensor.Shape, e.Tensor.Strides, buffer); err != nil {
			return fmt.Errorf("%s: tensor %s: %w", e.Tensor.File, p.Name, err)
		}
		if m.Config.Placement.Frozen && i+1 < len(parameters) {
			if err := m.Freeze(i + 1); err != nil {
				return err
			}
			if i == 0 { // no later tensor is as large as the embedding
				buffer = nil
				debug.FreeOSMemory()
			}
		}
	}
	for name := range byName {
		return fmt.Errorf("checkpoint: the model has no parameter %s", name)
	}
	if m.Config.Placement.Frozen {
		return m.Freeze(len(parameters))
	}
	return m.Touch()
}
