package peft

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// patterns are numbers of modules whose names end as an expression says; the first that does counts.
type patterns []struct {
	name  *regexp.Regexp
	value float64
}

// UnmarshalJSON reads an object in its order.
func (p *patterns) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	open, err := d.Token()
	for err == nil && open == json.Delim('{') && d.More() {
		var key json.Token
		one := slices.Grow(patterns(nil), 1)[:1]
		if key, err = d.Token(); err == nil {
			err = d.Decode(&one[0].value)
		}
		if err == nil {
			one[0].name, err = regexp.Compile(fmt.Sprintf(`^(?:.*\.)?(?:%v)$`, key))
		}
		*p = append(*p, one...)
	}
	return err
}

// MarshalJSON writes that all modules have the same.
func (p patterns) MarshalJSON() ([]byte, error) { return []byte("{}"), nil }

// of is the number of a module.
func (p patterns) of(module string, otherwise float64) float64 {
	for _, one := range p {
		if one.name.MatchString(module) {
			return one.value
		}
	}
	return otherwise
}

// selection says which modules PEFT puts adapters beside, as check_target_module_exists of its tuners_utils.py does.
type selection struct {
	Modules any `json:"target_modules"`  // names, or an expression
	Exclude any `json:"exclude_modules"` // likewise
	Layers  any `json:"layers_to_transform"`
	Pattern any `json:"layers_pattern"`
}

// texts are a string or a list of strings, or of numbers, as texts.
func texts(v any) (list []string) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			list = append(list, fmt.Sprint(one))
		}
	case nil:
	default:
		list = []string{fmt.Sprint(v)}
	}
	return list
}

// names tells whether a list of names, or an expression, means a module. Expressions of Python that are none here mean
// none.
func names(v any, module string) bool {
	if expression, ok := v.(string); ok {
		found, err := regexp.MatchString("^(?:"+expression+")$", module)
		return err == nil && found
	}
	return slices.ContainsFunc(texts(v), func(name string) bool {
		return module == name || strings.HasSuffix(module, "."+name)
	})
}

// has tells whether a module has an adapter. PEFT's "all-linear" means the linear modules but the head. A router is none
// in transformers.
func (s selection) has(module string) bool {
	expression, isText := s.Modules.(string)
	all := isText && strings.EqualFold(expression, "all-linear")
	named := all && module != embedding && module != head && target(module) != "gate" || !all && names(s.Modules, module)
	if !named || names(s.Exclude, module) {
		return false
	}
	layers := texts(s.Layers)
	if isText && !all || len(layers) == 0 {
		return true
	}
	patterns := texts(s.Pattern)
	if len(patterns) == 0 {
		patterns = []string{`[^.]*`}
	}
	for _, pattern := range patterns {
		re, err := regexp.Compile(`^(?:|.*?\.)(?:` + pattern + `)\.(\d+)\.`)
		if err != nil {
			continue
		}
		if found := re.FindStringSubmatch(module); found != nil {
			n, _ := strconv.Atoi(found[1]) // digits
			return slices.Contains(layers, strconv.Itoa(n))
		}
	}
	return false
}
