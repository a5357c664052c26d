package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/checkpoint/gguf"
	"gyre/orchestrate/checkpoint/hf"
	"gyre/orchestrate/checkpoint/tensors"
)

// model is a GGUF file seen as a Hugging Face checkpoint.
type model struct {
	config  hf.Config
	tensors map[string]*tensors.Tensor
}

// names of tensors outside and inside blocks, GGUF to Hugging Face.
var (
	rootNames  = map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
	blockNames = map[string]string{"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
		"attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
)

// ropeFactors is the tensor in which GGUF keeps what Llama 3's rotary scaling comes to.
const ropeFactors = "rope_freqs.weight"

func readModel(f *gguf.File) (model, error) {
	byName := map[string]*tensors.Tensor{}
	for _, t := range f.Tensors {
		byName[t.Name] = t
	}
	c, err := readConfig(f.Metadata, byName)
	if err != nil {
		return model{}, err
	}
	m := model{config: c, tensors: map[string]*tensors.Tensor{}}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if name == ropeFactors {
			continue
		}
		renamed, part, err := huggingFaceName(name)
		if err != nil {
			return model{}, err
		}
		t := *byName[name]
		t.Name = renamed
		if c.Family == hf.Llama {
			switch part {
			case "attn_q":
				unpermute(&t, c.NumHeads, c.HeadDim)
			case "attn_k":
				unpermute(&t, c.NumKVHeads, c.HeadDim)
			}
		}
		m.tensors[renamed] = &t
	}
	return m, nil
}

// huggingFaceName translates "blk.3.attn_q.weight"; part is "attn_q".
func huggingFaceName(name string) (renamed, part string, err error) {
	stem, kind := name, ""
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		stem, kind = name[:i], name[i:]
	}
	if root, ok := rootNames[stem]; ok && kind == ".weight" {
		return root + kind, stem, nil
	}
	fields := strings.Split(stem, ".")
	if len(fields) == 3 && fields[0] == "blk" && (kind == ".weight" || kind == ".bias") {
		block, err := strconv.ParseUint(fields[1], 10, 16)
		if short, ok := blockNames[fields[2]]; ok && err == nil {
			return fmt.Sprintf("model.layers.%d.%s%s", block, short, kind), fields[2], nil
		}
	}
	return "", "", fmt.Errorf("tensor %s has no place in a llama, qwen2 or qwen3 model", name)
}

// unpermute puts the rows of each head in Hugging Face's order: GGUF's llama files interleave the two halves of the
// rotary pairs.
func unpermute(t *tensors.Tensor, heads, headDim int64) {
	load, rows := t.Load, heads*headDim
	if len(t.Shape) == 0 || t.Shape[0] != rows { // misshapen: matching with the configuration reports it
		return
	}
	t.Load = func(buffer []byte) ([]byte, error) {
		raw, err := load(nil)
		if err != nil {
			return nil, err
		}
		buffer = tensors.Resize(buffer, int64(len(raw)))
		row := int64(len(raw)) / rows
		for to := range rows {
			head, i := to/headDim, to%headDim
			from := head*headDim + i%(headDim/2)*2 + i/(headDim/2)
			copy(buffer[to*row:(to+1)*row], raw[from*row:])
		}
		return buffer, nil
	}
}
