package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// aliases are other systems' spellings of legal values, by key. Case and - or _ do not matter anyway.
var aliases = map[string]map[string]string{
	"kl_estimator": {"kl": "k1", "mse": "k2", "low_var_kl": "k3"},
	"metric":       {"reward_std": "reward_variance", "entropy_std": "entropy_variance"},
	"advantage": {
		"bilevel_gae": "bi_level_gae", "reinforce_plus_plus": "reinforce_pp", "reinforce++": "reinforce_pp",
		"reinforce_plus_plus_baseline": "reinforce_pp_baseline", "reinforce++_baseline": "reinforce_pp_baseline",
	},
	"context":          {"limited_multi_turn": "window"},
	"normalize_within": {"group": "state"},
	"dtype":            {"fp32": "float32", "f32": "float32", "bf16": "bfloat16"},
}

// canonical returns the legal value that text spells.
func canonical(key, text string, legal []string) (string, bool) {
	folded := fold(text)
	base, plus := strings.CutSuffix(folded, "+")
	switch {
	case aliases[key][folded] != "":
		folded = aliases[key][folded]
	case plus && aliases[key][base] != "":
		folded = aliases[key][base] + "+"
	}
	for _, value := range legal {
		if fold(value) == fold(folded) {
			return value, true
		}
	}
	return "", false
}

func fold(s string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s)), "-", "_")
}

// bounds reads an interval: [ and ] include the limit, ( and ) exclude it, an empty upper limit is infinity.
func bounds(interval string) (low, high float64, lowIn, highIn bool) {
	from, to, _ := strings.Cut(interval[1:len(interval)-1], ",")
	low, _ = strconv.ParseFloat(from, 64)
	high = math.Inf(1)
	if to != "" {
		high, _ = strconv.ParseFloat(to, 64)
	}
	return low, high, interval[0] == '[', interval[len(interval)-1] == ']'
}

func within(x float64, interval string) bool {
	low, high, lowIn, highIn := bounds(interval)
	return (x > low || lowIn && x == low) && (x < high || highIn && x == high)
}

// spell writes an interval in words: ">= 0", "> 0 and <= 1".
func spell(interval string) string {
	low, high, lowIn, highIn := bounds(interval)
	text := fmt.Sprintf("> %v", low)
	if lowIn {
		text = fmt.Sprintf(">= %v", low)
	}
	switch {
	case math.IsInf(high, 1):
		return text
	case highIn:
		return fmt.Sprintf("%s and <= %v", text, high)
	}
	return fmt.Sprintf("%s and < %v", text, high)
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "a table"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "a list of strings"
		}
		return "a list of tables"
	case reflect.Array:
		return fmt.Sprintf("a list of %d numbers", t.Len())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "an integer"
}

func describe(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("the string %q", v)
	case int64:
		return fmt.Sprintf("the integer %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprint(v)
	case map[string]any:
		return "a table"
	case []any, []map[string]any:
		return fmt.Sprintf("a list of %d", reflect.ValueOf(v).Len())
	}
	return fmt.Sprintf("%v", v)
}
