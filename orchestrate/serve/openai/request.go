package openai

import (
	"strings"

	"gyre/orchestrate/serve"
)

// keys are parameters that have no field.
var keys = serve.Keys{Ignored: strings.Fields("user store metadata service_tier safety_identifier prompt_cache_key " +
	"prompt_cache_retention reasoning_effort reasoning verbosity include truncation background prediction"),
	OnlyDefault: map[string]any{
		"frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": map[string]any{},
		"best_of": 1.0, "echo": false, "suffix": "", "skip_special_tokens": true, "include_stop_str_in_output": false,
		"add_generation_prompt": true, "continue_final_message": false, "add_special_tokens": true,
		"functions": []any{}, "modalities": []any{"text"}, "conversation": "",
		"chat_template_kwargs": map[string]any{}, "response_format": map[string]any{"type": "text"},
		"text": map[string]any{"format": map[string]any{"type": "text"}},
	}}
