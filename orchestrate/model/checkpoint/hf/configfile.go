package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/model/chat/bpe"
	"gyre/torch"
)

// configFile is config.json as transformers reads and writes it. Written is the older spelling (rope_theta,
// rope_scaling, torch_dtype), which every release of transformers reads. A null leaves what was there before, but for
// pointers and ids.
type configFile struct {
	Architectures        []string          `json:"architectures"`
	ModelType            string            `json:"model_type"`
	VocabSize            int64             `json:"vocab_size"`
	HiddenSize           int64             `json:"hidden_size"`
	IntermediateSize     int64             `json:"intermediate_size"`
	Layers               int64             `json:"num_hidden_layers"`
	Heads                int64             `json:"num_attention_heads"`
	KVHeads              *int64            `json:"num_key_value_heads"`
	HeadDim              int64             `json:"head_dim"`
	MaxPositions         int64             `json:"max_position_embeddings"`
	RMSNormEps           decimal           `json:"rms_norm_eps"`
	TieEmbeddings        bool              `json:"tie_word_embeddings"`
	AttentionBias        bool              `json:"attention_bias,omitempty"`
	MLPBias              bool              `json:"mlp_bias,omitempty"`
	HiddenAct            string            `json:"hidden_act"`
	DType                string            `json:"dtype,omitempty"` // of transformers 5
	TorchDType           string            `json:"torch_dtype"`
	BOS                  bpe.IDs           `json:"bos_token_id"`
	PAD                  bpe.IDs           `json:"pad_token_id"`
	EOS                  bpe.IDs           `json:"eos_token_id"`
	RopeTheta            decimal           `json:"rope_theta"`
	RopeScaling          *rope             `json:"rope_scaling,omitempty"`
	RopeParameters       *rope             `json:"rope_parameters,omitempty"`
	OriginalMaxPositions int64             `json:"original_max_position_embeddings,omitempty"`
	PartialRotary        decimal           `json:"partial_rotary_factor,omitempty"`
	UseSlidingWindow     bool              `json:"use_sliding_window,omitempty"`
	SlidingWindow        *int64            `json:"sliding_window,omitempty"`
	MaxWindowLayers      int64             `json:"max_window_layers,omitempty"`
	LayerTypes           []string          `json:"layer_types,omitempty"`
	WindowPattern        int64             `json:"sliding_window_pattern,omitempty"`
	NoRopeLayers         []int64           `json:"no_rope_layers,omitempty"`
	NoRopeInterval       int64             `json:"no_rope_layer_interval,omitempty"`
	RopeLocalTheta       decimal           `json:"rope_local_base_freq,omitempty"`
	EmbeddingMultiplier  decimal           `json:"embedding_multiplier,omitempty"`
	LogitsScaling        decimal           `json:"logits_scaling,omitempty"`
	ResidualMultiplier   decimal           `json:"residual_multiplier,omitempty"`
	AttentionMultiplier  decimal           `json:"attention_multiplier,omitempty"`
	QueryPreAttnScalar   decimal           `json:"query_pre_attn_scalar,omitempty"`
	ScoreCap             *decimal          `json:"attn_logit_softcapping,omitempty"`
	LogitCap             *decimal          `json:"final_logit_softcapping,omitempty"`
	Activation           string            `json:"hidden_activation,omitempty"`
	Experts              int64             `json:"num_experts,omitempty"`
	LocalExperts         int64             `json:"num_local_experts,omitempty"`
	ChosenExperts        int64             `json:"num_experts_per_tok,omitempty"`
	ExpertSize           int64             `json:"moe_intermediate_size,omitempty"`
	SharedSize           int64             `json:"shared_intermediate_size,omitempty"`
	NormTopK             bool              `json:"norm_topk_prob,omitempty"`
	PositionEmbedding    string            `json:"position_embedding_type,omitempty"`
	SparseStep           int64             `json:"decoder_sparse_step,omitempty"`
	DenseLayers          []int64           `json:"mlp_only_layers,omitempty"`
	Quantization         any               `json:"quantization_config,omitempty"`
	Labels               map[string]string `json:"id2label,omitempty"`
	LabelIDs             map[string]int    `json:"label2id,omitempty"`
}

// defaults are transformers' values of absent keys.
func defaults(family torch.Family) configFile {
	f := configFile{HiddenSize: 4096, Layers: 32, Heads: 32, RMSNormEps: 1e-6, HiddenAct: "silu", RopeTheta: 10000,
		VocabSize: 151936, IntermediateSize: 22016, KVHeads: new(int64(32)), MaxPositions: 32768,
		SlidingWindow: new(int64(4096)), MaxWindowLayers: 28}
	families[family].defaults(&f)
	return f
}

// From takes the text of another configuration, of a model of the same family, for Encode.
func (c *Config) From(other Config) { c.text, c.rope = other.text, other.rope }

// plain reports whether ModelConfig and the scaling say all that a config.json does.
func (c Config) plain() bool {
	if c.rope != nil {
		if c.rope.Factor == 0 { // its kind alone is known
			return false
		}
		c.Shape.Rope = torch.Rope{}
	}
	return c.Shape == torch.Shape{} && slices.Contains([]torch.Family{torch.Llama, torch.Qwen2, torch.Qwen3}, c.Family)
}

// Encode writes config.json: of the first families all keys, of others the text that it was read from, with the keys
// that loading and saving may change.
func (c Config) Encode() ([]byte, error) {
	if c.text == "" {
		if !c.plain() {
			return nil, fmt.Errorf("config.json of a %s model: the one that it was read from is not there", c.Family)
		}
		return c.encodeAll(), nil
	}
	var keys map[string]any
	decoder := json.NewDecoder(strings.NewReader(c.text)) // numbers stay as they are written
	decoder.UseNumber()
	_ = decoder.Decode(&keys) // which was read before
	delete(keys, "dtype")
	keys["torch_dtype"], keys["tie_word_embeddings"] = c.DType.String(), c.TieEmbeddings
	keys["model_type"], keys["architectures"] = c.Family, []string{class(c.Family) + "ForCausalLM"}
	if c.Head == torch.HeadValue {
		keys["architectures"] = []string{class(c.Family) + valueTask}
		keys["id2label"], keys["label2id"] = map[string]string{"0": "VALUE"}, map[string]int{"VALUE": 0}
	}
	return bpe.EncodeJSON(keys, "  ")
}

// New is the configuration of a new model with these sizes; what else its family has is transformers' default, or where
// that fits large models alone, as Fresh says.
func New(c Config) (Config, error) {
	text := c.encodeAll()
	if fresh := families[c.Family].fresh; fresh != nil {
		var keys map[string]any
		_ = json.Unmarshal(text, &keys) // what was just written
		maps.Copy(keys, fresh(c))
		text, _ = json.Marshal(keys)
	}
	return ParseConfig(text)
}

func (c Config) encodeAll() []byte {
	f := configFile{Architectures: []string{class(c.Family) + "ForCausalLM"}, ModelType: string(c.Family),
		VocabSize: c.VocabSize, HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, Layers: c.NumLayers,
		Heads: c.NumHeads, KVHeads: &c.NumKVHeads, HeadDim: c.HeadDim, MaxPositions: c.MaxPositions,
		RMSNormEps: decimal(c.RMSNormEps), RopeTheta: decimal(c.RopeTheta), TieEmbeddings: c.TieEmbeddings,
		AttentionBias: c.QKVBias && c.Family != torch.Qwen2, MLPBias: c.MLPBias,
		HiddenAct: "silu", TorchDType: c.DType.String(), BOS: c.BOS, PAD: c.PAD, EOS: c.EOS, RopeScaling: c.rope}
	if c.Head == torch.HeadValue {
		f.Architectures = []string{class(c.Family) + valueTask}
		f.Labels, f.LabelIDs = map[string]string{"0": "VALUE"}, map[string]int{"VALUE": 0}
	}
	text, _ := bpe.EncodeJSON(f, "  ") // numbers of a configuration are finite
	return text
}

// decimal is a number that stays a float when Python reads it: 10000.0, not 10000. transformers checks the types of
// these.
type decimal float64

// MarshalJSON has the signature of json.Marshaler.
func (d decimal) MarshalJSON() ([]byte, error) {
	text := strconv.AppendFloat(nil, float64(d), 'g', -1, 64)
	if !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, nil
}

// commonKeys are read for every family.
const commonKeys = " architectures model_type vocab_size hidden_size intermediate_size num_hidden_layers " +
	"num_attention_heads num_key_value_heads head_dim max_position_embeddings rms_norm_eps tie_word_embeddings " +
	"hidden_act dtype torch_dtype bos_token_id pad_token_id eos_token_id rope_theta rope_scaling rope_parameters " +
	"original_max_position_embeddings partial_rotary_factor quantization_config id2label label2id "

// idleKeys change nothing of what a decoder computes: how it was trained, how transformers runs it, what pipelines ask.
const idleKeys = " initializer_range use_cache attention_dropout hidden_dropout resid_pdrop embd_pdrop " +
	"classifier_dropout pretraining_tp transformers_version auto_map name_or_path unsloth_version unsloth_fixed " +
	"unsloth_eager_attention cache_implementation gradient_checkpointing output_attentions output_hidden_states " +
	"output_router_logits return_dict return_dict_in_generate torchscript chunk_size_feed_forward " +
	"task_specific_params tokenizer_class problem_type finetuning_task prefix sep_token_id decoder_start_token_id " +
	"forced_bos_token_id forced_eos_token_id num_labels max_length min_length do_sample temperature top_k top_p " +
	"num_beams num_return_sequences length_penalty repetition_penalty diversity_penalty typical_p num_beam_groups " +
	"early_stopping suppress_tokens begin_suppress_tokens bad_words_ids exponential_decay_length_penalty " +
	"encoder_no_repeat_ngram_size no_repeat_ngram_size remove_invalid_values is_decoder is_encoder_decoder " +
	"pruned_heads tf_legacy_loss use_bfloat16 model_max_length attn_implementation " +
	"bos_token eos_token pad_token unk_token unk_token_id image_token_id transformers.js_config max_seq_len " +
	"no_rope_layer_interval max_window_layers is_llama_config interpolate_factor full_attn_mod "

// checkKeys refuses keys of which nothing is known, unless they are empty or switch something off: what they ask for
// would not be computed.
func checkKeys(data []byte, family torch.Family, p *problems) {
	var file map[string]json.RawMessage
	if json.Unmarshal(data, &file) != nil {
		return
	}
	known := " " + commonKeys + idleKeys + families[family].keys + " "
	refuse(file, "", func(key string) bool {
		return strings.Contains(known, " "+key+" ") || strings.HasPrefix(key, "_")
	}, fmt.Sprintf("is not known of a %s model", family), p)
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		checkRopeKeys(file[key], key+".", p)
	}
}

// ropeKeys are those of an object of a rotary embedding.
var ropeKeys = func() (keys []string) {
	for i := range reflect.TypeFor[rope]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[rope]().Field(i).Tag.Get("json"), ",")
		keys = append(keys, name)
	}
	return keys
}()

func checkRopeKeys(data []byte, prefix string, p *problems) {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return
	}
	refuse(object, prefix, func(key string) bool { return slices.Contains(ropeKeys, key) },
		"is not known of a rotary embedding", p)
	for _, layers := range []string{"full_attention", "sliding_attention"} {
		checkRopeKeys(object[layers], prefix+layers+".", p)
	}
}

func refuse(object map[string]json.RawMessage, prefix string, known func(key string) bool, why string, p *problems) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := string(object[key])
		if !known(key) && !slices.Contains([]string{"null", "false", "0", "0.0", `""`, "[]", "{}"}, value) {
			p.add(prefix+key, "%s, and may change what it computes: take it out of the file if it does not", why)
		}
	}
}
