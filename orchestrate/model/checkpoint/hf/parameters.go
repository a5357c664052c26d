package hf

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Parameter is a weight by its Hugging Face name.
type Parameter struct {
	Name  string
	Shape []int64
}

// The names of the weights outside the blocks.
const (
	EmbeddingName = "model.embed_tokens.weight"
	LMHeadName    = "lm_head.weight"
	ScoreName     = "score.weight"
	ScoreBiasName = "score.bias"
)

// Parameters lists the weights of a configuration under the names that the decoder gives them: embedding, blocks in
// order, final norm, head. A tied head is not listed.
func (c Config) Parameters(head torch.Head) []Parameter {
	list := []Parameter{{EmbeddingName, []int64{c.VocabSize, c.HiddenSize}}}
	for i := range c.NumLayers {
		list = append(list, c.block(fmt.Sprintf("model.layers.%d.", i), i)...)
	}
	list = append(list, Parameter{"model.norm.weight", []int64{c.HiddenSize}})
	switch {
	case head == torch.HeadValue:
		list = append(list, Parameter{ScoreName, []int64{1, c.HiddenSize}}, Parameter{ScoreBiasName, []int64{1}})
	case !c.TieEmbeddings:
		list = append(list, Parameter{LMHeadName, []int64{c.VocabSize, c.HiddenSize}})
	}
	return list
}

func (c Config) block(prefix string, layer int64) []Parameter {
	h, q, k, f := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim, c.MLPWidth(layer)
	var list []Parameter
	linear := func(name string, out, in int64, bias bool) {
		list = append(list, Parameter{prefix + name + ".weight", []int64{out, in}})
		if bias {
			list = append(list, Parameter{prefix + name + ".bias", []int64{out}})
		}
	}
	norm := func(name string, n int64) { list = append(list, Parameter{prefix + name + ".weight", []int64{n}}) }
	if !c.Shape.NoInputNorms {
		norm("input_layernorm", h)
	}
	linear("self_attn.q_proj", q, h, c.QKVBias)
	linear("self_attn.k_proj", k, h, c.QKVBias)
	linear("self_attn.v_proj", k, h, c.QKVBias)
	if c.QKNorm {
		qn, kn := c.HeadDim, c.HeadDim
		if c.Shape.WideQKNorm {
			qn, kn = q, k
		}
		norm("self_attn.q_norm", qn)
		norm("self_attn.k_norm", kn)
	}
	linear("self_attn.o_proj", h, q, c.OutBias)
	if c.Shape.OutputNorms {
		norm("post_self_attn_layernorm", h)
		norm("post_mlp_layernorm", h)
	}
	if !c.Shape.NoInputNorms {
		norm("post_attention_layernorm", h)
	}
	if f > 0 {
		linear("mlp.gate_proj", f, h, c.MLPBias)
		linear("mlp.up_proj", f, h, c.MLPBias)
		linear("mlp.down_proj", h, f, c.MLPBias)
	}
	if c.Mixes(layer) {
		linear("mlp.gate", c.Shape.Experts, h, false)
		for e := range c.Shape.Experts {
			linear(fmt.Sprintf("mlp.experts.%d.gate_proj", e), c.Shape.ExpertSize, h, false)
			linear(fmt.Sprintf("mlp.experts.%d.up_proj", e), c.Shape.ExpertSize, h, false)
		}
		for e := range c.Shape.Experts {
			linear(fmt.Sprintf("mlp.experts.%d.down_proj", e), h, c.Shape.ExpertSize, false)
		}
	}
	return list
}

// Count is the number of parameters, a tied head counted once.
func (c Config) Count(head torch.Head) int64 {
	one := c
	one.NumLayers = 0
	n := elements(one.Parameters(head))
	for layer := range c.NumLayers {
		n += elements(c.block("", layer))
	}
	return n
}

func elements(list []Parameter) (total int64) {
	for _, p := range list {
		total += torch.Parameter{Shape: p.Shape}.Elements()
	}
	return total
}

// Entry pairs a parameter with the tensor that fills it; nil leaves it zero (a new value head).
type Entry struct {
	Parameter
	Tensor *weights.Tensor
}

// Model is a model directory whose weights fit its configuration.
type Model struct {
	Config  Config // with the head that it was opened for
	Entries []Entry
	// what the caller may want to tell: a value head that starts from zero, a head that is not tied after all
	Notes   []string
	Weights *Weights // to be closed when all are loaded
}

// Open reads the configuration of a Hugging Face directory and matches its weights with it, for the given head or else
// the one it was saved with.
func Open(dir string, head *torch.Head) (*Model, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	if head == nil {
		head = &c.Head
	}
	w, err := OpenWeights(dir)
	if err != nil {
		return nil, err
	}
	m, err := Match(dir, c, *head, w)
	if err != nil {
		w.Close()
	}
	return m, err
}

// Match finds the tensor of every parameter. Tensors that are missing, too many, of the wrong shape or not of a float
// type are listed in one error.
//
// The head follows transformers: a tied model may carry a copy of its embedding as lm_head.weight, or only that copy;
// when the two differ the model is not tied, whatever config.json says, and the configuration of the result says so.
// For a value model, lm_head.weight is left out and an absent score starts from zero. Notes say what of this happened.
func Match(dir string, c Config, head torch.Head, w *Weights) (*Model, error) {
	w.Tensors = c.fromFile(w.Tensors)
	var notes []string
	lm, embedding := w.Tensors[LMHeadName], w.Tensors[EmbeddingName]
	if c.TieEmbeddings && embedding == nil {
		embedding = lm
	} else if c.TieEmbeddings && lm != nil && head == torch.HeadLM {
		if equal, err := sameValues(lm, embedding); err != nil {
			return nil, err
		} else if !equal {
			c.TieEmbeddings = false
			notes = append(notes, fmt.Sprintf("%s: config.json ties the head to the embedding, but the two differ "+
				"in the file: loaded untied", filepath.Base(lm.File)))
		}
	}
	var problems []string
	var list []Entry
	used := map[string]bool{LMHeadName: head == torch.HeadValue || c.TieEmbeddings}
	for _, p := range c.Parameters(head) {
		t := w.Tensors[p.Name]
		if p.Name == EmbeddingName {
			t = embedding
		}
		used[p.Name] = true
		list = append(list, Entry{p, t})
		switch {
		case t == nil && head == torch.HeadValue && (p.Name == ScoreName || p.Name == ScoreBiasName):
			if p.Name == ScoreName {
				notes = append(notes, dir+" has no value head (score.weight): it starts from zero")
			}
		case t == nil:
			hint := ""
			if p.Name == LMHeadName {
				hint = " (config.json has tie_word_embeddings false; if the model ties its head, set it to true)"
			}
			problems = append(problems, fmt.Sprintf("missing  %s %v%s", p.Name, p.Shape, hint))
		case !slices.Equal(t.Shape, p.Shape):
			problems = append(problems, fmt.Sprintf("shape    %s in %s: expected %v, got %v", p.Name,
				filepath.Base(t.File), p.Shape, t.Shape))
		case !t.DType.Float():
			problems = append(problems, fmt.Sprintf("type     %s in %s: %v, expected float32, bfloat16, float16 or "+
				"float64", p.Name, filepath.Base(t.File), t.DType))
		}
	}
	var extra []string
	for name, t := range w.Tensors {
		if !used[name] {
			extra = append(extra, fmt.Sprintf("extra    %s %v in %s", name, t.Shape, filepath.Base(t.File)))
		}
	}
	slices.Sort(extra)
	if problems = append(problems, extra...); len(problems) > 0 {
		return nil, mismatch(dir, c, problems)
	}
	c.Head = head
	c.TieEmbeddings = c.TieEmbeddings && head == torch.HeadLM // a value model has no head to tie
	return &Model{c, list, notes, w}, nil
}

func mismatch(dir string, c Config, problems []string) error {
	const most = 20
	rest := ""
	if n := len(problems); n > most {
		problems, rest = problems[:most], fmt.Sprintf("\n  … and %d more", n-most)
	}
	return fmt.Errorf("%s: the weights do not fit config.json (%s, %d layers of width %d):\n  %s%s", dir, c.Family,
		c.NumLayers, c.HiddenSize, strings.Join(problems, "\n  "), rest)
}

// sameValues compares two tensors element by element, as float32.
func sameValues(a, b *weights.Tensor) (bool, error) {
	if !slices.Equal(a.Shape, b.Shape) || !a.DType.Float() || !b.DType.Float() {
		return false, nil
	}
	x, _, err := a.Dense(weights.F32, nil, nil)
	if err != nil {
		return false, err
	}
	y, _, err := b.Dense(weights.F32, nil, nil)
	return bytes.Equal(x, y), err
}
