package hf

import "fmt"

// Head is what sits on the last hidden state.
type Head int

// LanguageModel gives logits over the vocabulary, ValueModel one number per position (…ForTokenClassification with
// one label).
const (
	LanguageModel Head = iota
	ValueModel
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

// Parameters lists the weights of a configuration: embedding, blocks in order, final norm, head. A tied head is not
// listed.
func (c Config) Parameters(head Head) []Parameter {
	list := []Parameter{{EmbeddingName, []int64{c.VocabSize, c.HiddenSize}}}
	for i := range c.NumLayers {
		list = append(list, c.block(fmt.Sprintf("model.layers.%d.", i))...)
	}
	list = append(list, Parameter{"model.norm.weight", []int64{c.HiddenSize}})
	switch {
	case head == ValueModel:
		list = append(list, Parameter{ScoreName, []int64{1, c.HiddenSize}}, Parameter{ScoreBiasName, []int64{1}})
	case !c.Tie:
		list = append(list, Parameter{LMHeadName, []int64{c.VocabSize, c.HiddenSize}})
	}
	return list
}

func (c Config) block(prefix string) []Parameter {
	h, q, k, f := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim, c.IntermediateSize
	var list []Parameter
	linear := func(name string, out, in int64, bias bool) {
		list = append(list, Parameter{prefix + name + ".weight", []int64{out, in}})
		if bias {
			list = append(list, Parameter{prefix + name + ".bias", []int64{out}})
		}
	}
	norm := func(name string, n int64) { list = append(list, Parameter{prefix + name + ".weight", []int64{n}}) }
	norm("input_layernorm", h)
	linear("self_attn.q_proj", q, h, c.QKVBias)
	linear("self_attn.k_proj", k, h, c.QKVBias)
	linear("self_attn.v_proj", k, h, c.QKVBias)
	if c.QKNorm {
		norm("self_attn.q_norm", c.HeadDim)
		norm("self_attn.k_norm", c.HeadDim)
	}
	linear("self_attn.o_proj", h, q, c.OutBias)
	norm("post_attention_layernorm", h)
	linear("mlp.gate_proj", f, h, c.MLPBias)
	linear("mlp.up_proj", f, h, c.MLPBias)
	linear("mlp.down_proj", h, f, c.MLPBias)
	return list
}

// Count is the number of parameters, a tied head counted once.
func (c Config) Count(head Head) int64 {
	one := c
	one.NumLayers = 0
	total, block := int64(0), int64(0)
	for _, p := range one.Parameters(head) {
		total += elements(p.Shape)
	}
	for _, p := range c.block("") {
		block += elements(p.Shape)
	}
	return total + c.NumLayers*block
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	return n
}
