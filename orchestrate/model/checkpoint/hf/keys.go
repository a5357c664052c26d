package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gyre/torch"
)

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
