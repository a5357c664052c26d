// Package peft reads and writes LoRA adapters as PEFT does: a directory with adapter_config.json and
// adapter_model.safetensors. An adapter of a linear layer with the weight W of shape [out, in] is A of shape [rank, in]
// and B of shape [out, rank], and stands for W + scale B A. That of the embedding [vocabulary, hidden] is A of shape
// [rank, vocabulary] and B of shape [hidden, rank], and stands for W + scale (B A)ᵀ.
//
//	config.go   adapter_config.json
//	adapter.go  a directory's adapters matched with their base model; writing one
//	merge.go    a base model with adapters added to its weights
//
// Files need not be well-formed: what does not fit the base model is refused before any data is read.
package peft

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// The names of the files of an adapter's directory.
const (
	ConfigName  = "adapter_config.json"
	weightsName = "adapter_model.safetensors"
)

// prefix stands before the names of a base model's modules in PEFT's files.
const prefix = "base_model.model."

// Module is the adapter of one module of the base model.
type Module struct {
	Name  string  // "model.layers.0.self_attn.q_proj", "model.embed_tokens", "lm_head"
	Scale float64 // of the product
	Rank  int64

	// Of a layer's experts ("model.layers.0.mlp.experts.down_proj"), whose A lie one after another; 0: of one matrix.
	// B has for each column of one of them those of all experts.
	experts int64
	// one of them alone, and of its B the rows from here on
	expert, row int64
}

// inFile is PEFT's name of a tensor. Its wrappers of experts lie in each other, that of down_proj outermost.
func inFile(name, experts string, targets []string) string {
	layer, rest, _ := strings.Cut(name, ".mlp.experts.")
	switch target, end, _ := strings.Cut(rest, "."); {
	case target == "gate_up_proj" && slices.Contains(targets, "experts.down_proj"):
		name = layer + "." + experts + ".base_layer." + end
	case target == "gate_up_proj" || target == "down_proj":
		name = layer + "." + experts + "." + end
	}
	return prefix + name
}

// Adapter is an opened directory. Close it when no tensor will be loaded any more.
type Adapter struct {
	Config  Config
	Modules []Module // in the order of the base model's parameters, the head last
	// Tensors are A and B of every module by PEFT's names without its prefix ("….q_proj.lora_A.weight",
	// "model.embed_tokens.lora_embedding_A"), and the value head's (score.weight, score.bias) where there is one.
	Tensors map[string]*weights.Tensor
	file    *weights.File
}

// Close closes the file of weights.
func (a *Adapter) Close() error { return a.file.Close() }

// names are those of the tensors A and B, without PEFT's prefix.
func (m Module) names() [2]string {
	if m.Name == embedding {
		return [2]string{m.Name + ".lora_embedding_A", m.Name + ".lora_embedding_B"}
	}
	return [2]string{m.Name + ".lora_A.weight", m.Name + ".lora_B.weight"}
}

// The modules outside the blocks that may have adapters.
var (
	embedding = strings.TrimSuffix(hf.EmbeddingName, ".weight")
	head      = strings.TrimSuffix(hf.LMHeadName, ".weight")
)

// Open reads the adapters in dir and matches them with the base model of a configuration. Tensors that are missing, too
// many or misshapen are listed in one error.
func Open(dir string, base hf.Config) (*Adapter, error) {
	path := filepath.Join(dir, ConfigName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no adapter: expected %s and %s in it: %w", dir, ConfigName, weightsName, err)
	}
	if err != nil {
		return nil, err
	}
	a := &Adapter{Tensors: map[string]*weights.Tensor{}}
	if a.Config, err = parse(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	path = filepath.Join(dir, weightsName)
	if a.file, err = weights.Open(path); err != nil {
		return nil, err
	}
	if err := a.match(base); err != nil {
		a.file.Close()
		return nil, fmt.Errorf("%s: the adapters do not fit the base model (%s, %d layers of width %d):\n  %w", path,
			base.Family, base.NumLayers, base.HiddenSize, err)
	}
	return a, nil
}

// match finds the adapters of the base model's modules among the file's tensors.
func (a *Adapter) match(base hf.Config) error {
	found := map[string]*weights.Tensor{}
	for _, t := range a.file.Tensors {
		found[t.Name] = t
	}
	var problems []string
	for _, p := range a.adaptable(base) {
		m := Module{Name: strings.TrimSuffix(p.Name, ".weight")}
		if len(p.Shape) == 3 {
			m.experts, p.Shape = p.Shape[0], p.Shape[1:]
		}
		halves := 0
		for _, name := range m.names() {
			file := inFile(name, base.ExpertsModule(), a.Config.parameters)
			if t := found[file]; t != nil {
				a.Tensors[name] = t
				delete(found, file)
				halves++
			}
		}
		if copied := prefix + m.Name + ".base_layer.weight"; m.Name == embedding || m.Name == head {
			if t := found[copied]; t != nil && slices.Equal(t.Shape, p.Shape) {
				delete(found, copied) // PEFT saves a copy of the base's embedding beside the adapter
			}
		}
		if halves == 0 {
			continue
		}
		if err := a.complete(&m, p.Shape); err != nil {
			problems = append(problems, err.Error())
		}
		a.Modules = append(a.Modules, m)
	}
	for name, shape := range map[string][]int64{hf.ScoreName: {1, base.HiddenSize}, hf.ScoreBiasName: {1}} {
		if t := found[prefix+name]; t != nil && slices.Equal(t.Shape, shape) && t.DType.Float() {
			a.Tensors[name] = t
			delete(found, prefix+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		problems = append(problems, fmt.Sprintf("%s %v: the base model has no module for it", name, found[name].Shape))
	}
	if len(problems) == 0 && len(a.Modules) == 0 {
		problems = append(problems, "no adapter in it")
	}
	if len(problems) > 0 {
		return errors.New(listed(problems))
	}
	return nil
}

// listed joins the first problems with line breaks and counts the others.
func listed(problems []string) string {
	const most = 10
	if n := len(problems); n > most {
		problems = append(problems[:most:most], fmt.Sprintf("… and %d more", n-most))
	}
	return strings.Join(problems, "\n  ")
}

// adaptable lists the matrices of the base model that may have adapters, and the stacked ones of experts that
// target_parameters names.
func (a *Adapter) adaptable(base hf.Config) []hf.Parameter {
	base.TieEmbeddings = false // a tied head can have an adapter of its own
	all := base.Parameters(torch.HeadLM)
	all = slices.DeleteFunc(all, func(p hf.Parameter) bool { return len(p.Shape) != 2 })
	h, f := base.HiddenSize, base.Shape.ExpertSize
	for layer := range base.NumLayers {
		for _, p := range []hf.Parameter{{Name: "experts.gate_up_proj", Shape: []int64{base.Shape.Experts, 2 * f, h}},
			{Name: "experts.down_proj", Shape: []int64{base.Shape.Experts, h, f}}} {
			if base.Mixes(layer) && slices.Contains(a.Config.parameters, p.Name) {
				p.Name = fmt.Sprintf("model.layers.%d.mlp.%s.weight", layer, p.Name)
				all = append(all, p)
			}
		}
	}
	return all
}

// complete checks the tensors of a module whose weight has the given shape, and finds its rank and scale.
func (a *Adapter) complete(m *Module, shape []int64) error {
	out, in := shape[0], shape[1]
	if m.Name == embedding {
		out, in = in, out
	}
	m.Rank = a.Config.Rank
	each := max(m.experts, 1)
	if first := a.Tensors[m.names()[0]]; a.Config.varies && first != nil && len(first.Shape) == 2 &&
		first.Shape[0] >= each {
		m.Rank = first.Shape[0] / each
	}
	for i, want := range [][]int64{{m.Rank * each, in}, {out, m.Rank * each}} {
		name := m.names()[i]
		switch t := a.Tensors[name]; {
		case t == nil:
			return fmt.Errorf("%s is missing, its other half is there", prefix+name)
		case !t.DType.Float():
			return fmt.Errorf("%s: type %v, expected float32, bfloat16, float16 or float64", prefix+name, t.DType)
		case !slices.Equal(t.Shape, want):
			return fmt.Errorf("%s: expected shape %v, got %v", prefix+name, want, t.Shape)
		}
	}
	if m.Scale = a.Config.Alpha / float64(m.Rank); a.Config.RSLoRA {
		m.Scale = a.Config.Alpha / math.Sqrt(float64(m.Rank))
	}
	return nil
}

// Uniform finds the rank, the scale and the targets (q_proj … down_proj, embed_tokens, lm_head) that all adapters of
// the base model share, which is how Gyre trains and samples with them. Others can only be merged.
func (a *Adapter) Uniform(base hf.Config) (rank int64, scale float64, targets []string, err error) {
	layers := map[string]int64{}
	for _, m := range a.Modules {
		first := a.Modules[0]
		if m.Rank != first.Rank || m.Scale != first.Scale {
			return 0, 0, nil, fmt.Errorf("the adapter of %s has rank %d and scale %v, that of %s rank %d and scale "+
				"%v: expected one rank and scale for all; merge the adapters (gyre model merge)", m.Name, m.Rank,
				m.Scale,
				first.Name, first.Rank, first.Scale)
		}
		target := m.Name[strings.LastIndexByte(m.Name, '.')+1:]
		if m.experts > 0 {
			target = "experts." + target
		}
		if layers[target] == 0 {
			targets = append(targets, target)
		}
		layers[target]++
	}
	for _, target := range targets {
		all := base.NumLayers
		if strings.HasPrefix(target, "experts.") {
			all = base.Mixtures()
		}
		if n := layers[target]; n != all && "model."+target != embedding && target != head {
			return 0, 0, nil, fmt.Errorf("%d of %d layers have an adapter of %s: expected one in all layers; merge "+
				"the adapters (gyre model merge)", n, all, target)
		}
	}
	return a.Modules[0].Rank, a.Modules[0].Scale, targets, nil
}

// Save writes adapters into the existing directory dir. Names are those of Adapter.Tensors.
func Save(dir string, c Config, list []weights.Source) error {
	f := file{Type: "LORA", Task: "CAUSAL_LM", Base: c.Base, Rank: c.Rank, Alpha: c.Alpha, Dropout: c.Dropout,
		RSLoRA: c.RSLoRA, Bias: "none", Init: true, Inference: true, RankPattern: map[string]any{}}
	modules := []string{}
	for _, target := range c.Targets {
		if strings.HasPrefix(target, "experts.") {
			f.Parameters = append(f.Parameters, target)
		} else {
			modules = append(modules, target)
		}
	}
	f.Targets = modules
	if slices.ContainsFunc(list, func(s weights.Source) bool { return s.Name == hf.ScoreName }) {
		f.Task, f.SavedModules = "TOKEN_CLS", []string{"score"}
	}
	data, err := bpe.EncodeJSON(f, "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigName), data, 0o644); err != nil {
		return err
	}
	named := slices.Clone(list)
	for i := range named {
		named[i].Name = inFile(named[i].Name, c.Experts, c.Targets)
	}
	return weights.Write(filepath.Join(dir, weightsName), named, map[string]string{"format": "pt"})
}
