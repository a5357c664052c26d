package hf

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gyre/orchestrate/model/checkpoint/weights"
)

// inLayer is the name of a block's tensor: its prefix, its module, and what of the module it is.
var inLayer = regexp.MustCompile(`^(model\.layers\.\d{1,5}\.)(.+)(\.weight|\.bias)$`)

// fromFile gives the tensors of a file the names of Parameters, and makes of a fused tensor its parts.
func (c Config) fromFile(tensors map[string]*weights.Tensor) map[string]*weights.Tensor {
	of := families[c.Family]
	inFile := map[string]string{}
	for own, name := range of.names {
		inFile[name] = own
	}
	out := map[string]*weights.Tensor{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		m := inLayer.FindStringSubmatch(name)
		if m == nil {
			out[name] = t
			continue
		}
		if own, renamed := inFile[m[2]]; renamed {
			out[m[1]+own+m[3]] = t
			continue
		}
		i := slices.IndexFunc(of.fused, func(f fusedModule) bool { return f.name == m[2] })
		if i < 0 || !c.split(t, m, of.fused[i].parts, out) {
			out[name] = t
		}
	}
	return out
}

// split adds the parts of a fused tensor; false where they do not fit it, which matching then reports.
func (c Config) split(t *weights.Tensor, name, parts []string, out map[string]*weights.Tensor) bool {
	rows := int64(0)
	for _, part := range parts {
		rows += c.rows(part)
	}
	if len(t.Shape) == 0 || t.Shape[0] != rows {
		return false
	}
	first := int64(0)
	for _, part := range parts {
		one, begin, count := *t, first, c.rows(part)
		first += count
		one.Name = name[1] + part + name[3]
		one.Shape = append([]int64{count}, t.Shape[1:]...)
		one.Load = func(buffer []byte) ([]byte, error) {
			whole, err := t.Load(nil)
			if err != nil {
				return nil, err
			}
			row := int64(len(whole)) / rows
			buffer = weights.Resize(buffer, count*row)
			copy(buffer, whole[begin*row:])
			return buffer, nil
		}
		out[one.Name] = &one
	}
	return true
}

// rows counts the outputs of a module.
func (c Config) rows(module string) int64 {
	for _, p := range c.block("") {
		if p.Name == module+".weight" {
			return p.Shape[0]
		}
	}
	return 0
}

// forFile is the inverse of fromFile. Parts of a fused tensor follow each other in a list.
func (c Config) forFile(list []weights.Source) []weights.Source {
	of := families[c.Family]
	var out []weights.Source
	for i := 0; i < len(list); i++ {
		s := list[i]
		m := inLayer.FindStringSubmatch(s.Name)
		if m == nil {
			out = append(out, s)
			continue
		}
		if name, renamed := of.names[m[2]]; renamed {
			s.Name = m[1] + name + m[3]
		}
		for _, f := range of.fused {
			if f.parts[0] == m[2] && i+len(f.parts) <= len(list) {
				s = fuse(fmt.Sprint(m[1], f.name, m[3]), list[i:i+len(f.parts)])
				i += len(f.parts) - 1
			}
		}
		out = append(out, s)
	}
	return out
}

func fuse(name string, parts []weights.Source) weights.Source {
	s := parts[0]
	s.Name, s.Shape = name, slices.Clone(s.Shape)
	for _, p := range parts[1:] {
		s.Shape[0] += p.Shape[0]
	}
	s.Fill = func(dst []byte) error {
		for _, p := range parts {
			size, err := p.Bytes()
			if err != nil {
				return err
			}
			if err := p.Fill(dst[:size]); err != nil {
				return err
			}
			dst = dst[size:]
		}
		return nil
	}
	return s
}

// FusedModule names the matrix of a file that the rows of a target of adapters ("q_proj") lie in; "" where it has one
// of its own.
func (c Config) FusedModule(target string) string {
	for _, f := range families[c.Family].fused {
		if slices.ContainsFunc(f.parts, func(part string) bool { return strings.HasSuffix(part, "."+target) }) {
			return f.name
		}
	}
	return ""
}
