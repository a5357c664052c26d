package hf

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/orchestrate/model/checkpoint/weights"
)

// inLayer is the name of a block's tensor: its prefix with the layer's number, its module, and what of the module it
// is, which names of stacked experts leave out.
var inLayer = regexp.MustCompile(`^(model\.layers\.(\d{1,5})\.)(.+?)(\.weight|\.bias|)$`)

// expertNumber is that of an expert's module, in place of which names of a family have "*".
var expertNumber = regexp.MustCompile(`(\.experts\.)(\d{1,5})(\.)`)

// starred is a module's name with "*" for its expert, whose number comes beside it.
func starred(module string) (name, expert string) {
	if m := expertNumber.FindStringSubmatch(module); m != nil {
		return expertNumber.ReplaceAllString(module, "$1*$3"), m[2]
	}
	return module, ""
}

// fromFile gives the tensors of a file the names of Parameters, and makes of a fused tensor its parts.
func (c Config) fromFile(tensors map[string]*weights.Tensor) map[string]*weights.Tensor {
	of := families[c.Family]
	inFile, fused := map[string]string{}, of.fused
	for own, name := range of.names {
		inFile[name] = own
	}
	if c.Shape.Experts > 0 {
		inFile["block_sparse_moe.router"] = "mlp.gate"
		fused = slices.Concat(fused, stackedExperts)
	}
	out := map[string]*weights.Tensor{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		m := inLayer.FindStringSubmatch(name)
		if m == nil {
			out[name] = t
			continue
		}
		module, expert := starred(m[3])
		if own, renamed := inFile[module]; renamed {
			out[m[1]+strings.Replace(own, "*", expert, 1)+m[4]] = t
			continue
		}
		i := slices.IndexFunc(fused, func(f fusedModule) bool { return f.name == m[3] })
		if i < 0 || !c.split(t, m, fused[i].parts, out) {
			out[name] = t
		}
	}
	return out
}

// parts are the modules of a fused one, each expert's where a name has "*".
func (c Config) parts(of []string) (all []string) {
	if !strings.Contains(of[0], "*") {
		return of
	}
	for e := range c.Shape.Experts {
		for _, part := range of {
			all = append(all, strings.Replace(part, "*", strconv.FormatInt(e, 10), 1))
		}
	}
	return all
}

// split adds the parts of a fused tensor; false where they do not fit it, which matching then reports. The rows of
// stacked experts are those of one after another.
func (c Config) split(t *weights.Tensor, name, of []string, out map[string]*weights.Tensor) bool {
	layer, _ := strconv.ParseInt(name[2], 10, 64)
	rows := map[string]int64{}
	for _, p := range c.block("", layer) {
		rows[strings.TrimSuffix(p.Name, ".weight")] = p.Shape[0]
	}
	parts, total := c.parts(of), int64(0)
	for _, part := range parts {
		total += rows[part]
	}
	n := max(len(t.Shape)-1, 1)
	if len(t.Shape) == 0 || total == 0 || elements([]Parameter{{Shape: t.Shape[:n]}}) != total {
		return false
	}
	first, row := int64(0), elements([]Parameter{{Shape: t.Shape[n:]}})
	for _, part := range parts {
		own := name[1] + part + cmp.Or(name[4], ".weight")
		out[own] = t.Slice(own, first*row, append([]int64{rows[part]}, t.Shape[n:]...)...)
		first += rows[part]
	}
	return true
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
		module, expert := starred(m[3])
		if name, renamed := of.names[module]; renamed {
			s.Name = m[1] + strings.Replace(name, "*", expert, 1) + m[4]
		}
		for _, f := range of.fused {
			if strings.Replace(f.parts[0], "*", "0", 1) != m[3] {
				continue
			}
			if n := len(c.parts(f.parts)); i+n <= len(list) {
				s = fuse(fmt.Sprint(m[1], f.name, m[4]), list[i:i+n])
				if expert != "" {
					s.Shape = []int64{c.Shape.Experts, s.Shape[0] / c.Shape.Experts, s.Shape[1]}
				}
				i += n - 1
				break
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
			if err := p.Fill(dst[:p.Bytes()]); err != nil {
				return err
			}
			dst = dst[p.Bytes():]
		}
		return nil
	}
	return s
}

// ExpertsModule is the module of a layer's experts in transformers, which keeps them stacked.
func (c Config) ExpertsModule() string {
	if slices.ContainsFunc(families[c.Family].fused, func(f fusedModule) bool {
		return strings.HasPrefix(f.name, "block_sparse_moe.") // of Granite, in files too
	}) {
		return "block_sparse_moe.experts"
	}
	return "mlp.experts"
}

// FusedModule names what of a block the matrix of a target of adapters ("q_proj") lies in together with others; ""
// where it has one of its own.
func (c Config) FusedModule(target string) string {
	fused := families[c.Family].fused
	if c.Shape.Experts > 0 {
		fused = stackedExperts
	}
	for _, f := range fused {
		if slices.ContainsFunc(f.parts, func(part string) bool { return strings.HasSuffix(part, "."+target) }) {
			return f.name
		}
	}
	return ""
}
