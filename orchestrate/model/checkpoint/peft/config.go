package peft

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gyre/internal/nearest"
	"gyre/internal/regular"
	"gyre/torch"
)

// Config is what adapter_config.json says of adapters.
type Config struct {
	Base    string   // base_model_name_or_path: where the base model lies
	Rank    int64    // r
	Alpha   float64  // lora_alpha
	RSLoRA  bool     // use_rslora: the scale is alpha/sqrt(rank)
	Dropout float64  // lora_dropout
	Targets []string // what Save writes as target_modules and target_parameters (experts.…): see torch.TargetNames
	Experts string   // the module of a layer's experts
	// what target_parameters names, as Targets would
	parameters   []string
	ranks        patterns // rank_pattern and alpha_pattern: what some modules have instead
	alphas       patterns
	selected     selection
	biases       bool     // biases may be trained
	savedModules []string // that are trained whole, but for the value head
}

// file is adapter_config.json as Gyre writes it, and the options of it that Gyre acts on.
type file struct {
	Type         string   `json:"peft_type"`
	Task         string   `json:"task_type"`
	Base         string   `json:"base_model_name_or_path"`
	Rank         int64    `json:"r"`
	Alpha        float64  `json:"lora_alpha"`
	Dropout      float64  `json:"lora_dropout"`
	RSLoRA       bool     `json:"use_rslora"`
	Targets      any      `json:"target_modules"`
	Parameters   []string `json:"target_parameters,omitempty"`
	Bias         string   `json:"bias"`
	Init         any      `json:"init_lora_weights"`
	RankPattern  patterns `json:"rank_pattern"`
	AlphaPattern patterns `json:"alpha_pattern"`
	Inference    bool     `json:"inference_mode"`
	FanInFanOut  bool     `json:"fan_in_fan_out"`
	SavedModules []string `json:"modules_to_save"`
}

// told are options without effect on what adapters compute once they are trained. Which modules have adapters is told
// by the tensors, which are to be those of selection.
var told = []string{"auto_mapping", "base_model_name_or_path", "revision", "peft_version", "task_type",
	"inference_mode", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "lora_dropout",
	"megatron_core", "qalora_group_size", "loftq_config", "eva_config", "corda_config"}

// acted are options that parse reads.
var acted = []string{"peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias",
	"init_lora_weights", "modules_to_save", "target_parameters"}

// plainInits are ways to initialise adapters that leave the base model's weights as they are.
var plainInits = []any{nil, true, false, "gaussian", "eva", "orthogonal"}

// ReadConfig reads dir/adapter_config.json. Options that Gyre does not know are ignored where their value is null,
// false, zero or empty, which is how PEFT writes what is not used, and refused otherwise.
func ReadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, ConfigName)
	data, err := regular.Read(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

func parse(data []byte) (Config, error) {
	f := file{Alpha: 8, Rank: 8, Bias: "none"} // PEFT's values of absent keys
	var all map[string]any
	var chosen selection
	if err := json.Unmarshal(data, &all); err != nil {
		return Config{}, fmt.Errorf("not a JSON object: %w", err)
	}
	if err := errors.Join(json.Unmarshal(data, &f), json.Unmarshal(data, &chosen)); err != nil {
		return Config{}, err
	}
	var problems []error
	problem := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf(key+": "+format, args...))
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Contains(told, key) && !slices.Contains(acted, key) && !unused(all[key]) {
			problem(key, "%v is not supported%s: PEFT merges such adapters (merge_and_unload)", all[key],
				nearest.Hint(key, acted))
		}
	}
	if f.Type != "LORA" {
		problem("peft_type", "expected \"LORA\", got %q", f.Type)
	}
	if !slices.Contains([]string{"none", "all", "lora_only"}, f.Bias) {
		problem("bias", "expected none, all or lora_only, got %q", f.Bias)
	}
	if !slices.Contains(plainInits, f.Init) {
		problem("init_lora_weights", "%v changes the base model's weights: convert the adapter with PEFT's "+
			"path_initial_model_for_weight_conversion", f.Init)
	}
	f.SavedModules = slices.DeleteFunc(f.SavedModules, func(name string) bool {
		return name == "score" || name == "classifier" // PEFT names both where a model has a value head
	})
	var experts []string
	for _, name := range f.Parameters { // PEFT matches ends of names
		target := "experts." + name[strings.LastIndexByte(name, '.')+1:]
		if torch.TargetsOf([]string{target}) == 0 {
			problem("target_parameters", "%q is not supported: expected experts.gate_up_proj or experts.down_proj",
				name)
		}
		experts = append(experts, target)
	}
	if f.Rank < 1 || f.Rank > maxRank {
		problem("r", "expected a rank from 1 to %d, got %d", maxRank, f.Rank)
	}
	if f.Alpha <= 0 || math.IsInf(f.Alpha, 0) {
		problem("lora_alpha", "expected a number > 0, got %v", f.Alpha)
	}
	return Config{Base: f.Base, Rank: f.Rank, Alpha: f.Alpha, RSLoRA: f.RSLoRA, Dropout: f.Dropout,
		parameters: experts, ranks: f.RankPattern, alphas: f.AlphaPattern, selected: chosen,
		biases: f.Bias != "none", savedModules: f.SavedModules}, errors.Join(problems...)
}

// maxRank bounds ranks, so that sizes computed from a hostile file stay small.
const maxRank = 1 << 16

// unused reports whether a value is how PEFT writes an option that is not used.
func unused(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}
