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
	// Whole are the base model's parameters that are trained themselves, by their names: they take its place.
	Whole map[string]*weights.Tensor
	file  *weights.File
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
	c, err := ReadConfig(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: no adapter: expected %s and %s in it: %w", dir, ConfigName, weightsName, err)
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, weightsName)
	a := &Adapter{Config: c, Tensors: map[string]*weights.Tensor{}, Whole: map[string]*weights.Tensor{}}
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
		found[t.Name] = finite(t)
	}
	problems := a.matchWhole(base, found)
	for _, p := range adaptable(base, a.Config.parameters) {
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
		if halves == 0 && a.expects(m, base) {
			problems = append(problems, m.Name+" has no adapter, but target_modules says that it has one")
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
	if len(problems) == 0 && len(a.Modules)+len(a.Whole) == 0 {
		problems = append(problems, "no adapter in it")
	}
	if len(problems) > 0 {
		return errors.New(listed(problems))
	}
	return nil
}

// expects tells whether a module of the base is to have an adapter. Modules that transformers has in another form than
// Gyre, with others in one matrix, have none.
func (a *Adapter) expects(m Module, base hf.Config) bool {
	if m.experts > 0 {
		return true // adaptable names none but those of target_parameters
	}
	saved := slices.ContainsFunc(a.Config.savedModules, func(name string) bool {
		return slices.Contains(strings.Split(m.Name, "."), name)
	})
	return !saved && !strings.Contains(m.Name, ".mlp.experts.") && base.FusedModule(target(m.Name)) == "" &&
		a.Config.selected.has(m.Name)
}

// matchWhole takes from found the tensors that take the place of the base's: those of modules_to_save, and biases.
func (a *Adapter) matchWhole(base hf.Config, found map[string]*weights.Tensor) (problems []string) {
	base.TieEmbeddings = false
	saved := map[string]bool{}
	for _, p := range base.Parameters(torch.HeadLM) {
		module, isBias := strings.CutSuffix(p.Name, ".bias")
		name := prefix + p.Name
		if isBias && found[name] == nil {
			name = prefix + module + ".base_layer.bias"
		}
		whole := isBias && a.Config.biases
		for _, of := range a.Config.savedModules {
			if slices.Contains(strings.Split(p.Name, "."), of) {
				whole, saved[of] = true, saved[of] || found[name] != nil
			}
		}
		if t := found[name]; whole && t != nil && slices.Equal(t.Shape, p.Shape) && t.DType.Float() {
			a.Whole[p.Name] = t
			delete(found, name)
		}
	}
	for _, of := range a.Config.savedModules {
		if !saved[of] {
			problems = append(problems, fmt.Sprintf("modules_to_save: %q: no tensor of it is in the file", of))
		}
	}
	return problems
}

// listed joins the first problems with line breaks and counts the others.
func listed(problems []string) string {
	const most = 10
	if n := len(problems); n > most {
		problems = append(problems[:most:most], fmt.Sprintf("… and %d more", n-most))
	}
	return strings.Join(problems, "\n  ")
}

// adaptable lists the matrices of the base model that may have adapters, and the stacked ones of experts among some
// parameters.
func adaptable(base hf.Config, parameters []string) []hf.Parameter {
	base.TieEmbeddings = false // a tied head can have an adapter of its own
	all := base.Parameters(torch.HeadLM)
	all = slices.DeleteFunc(all, func(p hf.Parameter) bool { return len(p.Shape) != 2 })
	h, f := base.HiddenSize, base.Shape.ExpertSize
	for layer := range base.NumLayers {
		for _, p := range []hf.Parameter{{Name: "experts.gate_up_proj", Shape: []int64{base.Shape.Experts, 2 * f, h}},
			{Name: "experts.down_proj", Shape: []int64{base.Shape.Experts, h, f}}} {
			if base.Mixes(layer) && slices.Contains(parameters, p.Name) {
				p.Name = fmt.Sprintf("model.layers.%d.mlp.%s.weight", layer, p.Name)
				all = append(all, p)
			}
		}
	}
	return all
}

// Count is the number of elements of A and B of all targets (see torch.TargetNames) of a base model.
func Count(base hf.Config, rank int64, targets []string) (elements int64) {
	for _, p := range adaptable(base, targets) {
		inAndOut := p.Shape[len(p.Shape)-2] + p.Shape[len(p.Shape)-1]
		if len(p.Shape) == 3 {
			elements += p.Shape[0] * rank * inAndOut
		} else if slices.Contains(targets, target(strings.TrimSuffix(p.Name, ".weight"))) {
			elements += rank * inAndOut
		}
	}
	return elements
}

// target is the name of a module's target: see torch.TargetNames.
func target(module string) string { return module[strings.LastIndexByte(module, '.')+1:] }

// complete checks the tensors of a module whose weight has the given shape, and finds its rank and scale.
func (a *Adapter) complete(m *Module, shape []int64) error {
	out, in := shape[0], shape[1]
	if m.Name == embedding {
		out, in = in, out
	}
	m.Rank = int64(a.Config.ranks.of(m.Name, float64(a.Config.Rank)))
	if m.Rank < 1 || m.Rank > maxRank {
		return fmt.Errorf("rank_pattern: expected ranks from 1 to %d, got %d of %s", maxRank, m.Rank, m.Name)
	}
	each := max(m.experts, 1)
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
	alpha := a.Config.alphas.of(m.Name, a.Config.Alpha)
	if m.Scale = alpha / float64(m.Rank); a.Config.RSLoRA {
		m.Scale = alpha / math.Sqrt(float64(m.Rank))
	}
	return nil
}

// Save writes adapters into the existing directory dir. Names are those of Adapter.Tensors.
func Save(dir string, c Config, list []weights.Source) error {
	f := file{Type: "LORA", Task: "CAUSAL_LM", Base: c.Base, Rank: c.Rank, Alpha: c.Alpha, Dropout: c.Dropout,
		RSLoRA: c.RSLoRA, Bias: "none", Init: true, Inference: true}
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
	data, _ := bpe.EncodeJSON(f, "  ") // texts and numbers always encode
	if err := os.WriteFile(filepath.Join(dir, ConfigName), data, 0o644); err != nil {
		return err
	}
	named := slices.Clone(list)
	for i := range named {
		named[i].Name = inFile(named[i].Name, c.Experts, c.Targets)
	}
	return weights.Write(filepath.Join(dir, weightsName), named, map[string]string{"format": "pt"})
}
