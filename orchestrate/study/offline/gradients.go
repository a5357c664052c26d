package offline

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/internal/nearest"
	"gyre/internal/npz"
	"gyre/internal/statistics"
)

// Gradients is one file of component gradients, with keys COMPONENT/PARAMETER.
type Gradients struct {
	*npz.File
	Step       int // in its name; -1 = none
	Components []string
	Parameters []string
}

var stepInName = regexp.MustCompile(`step[_-]?(\d+)`)

// stepOf is the step in a file's name; -1 = none.
func stepOf(path string) int {
	if m := stepInName.FindStringSubmatch(filepath.Base(path)); m != nil {
		if step, err := strconv.Atoi(m[1]); err == nil {
			return step
		}
	}
	return -1
}

// OpenGradients opens a file. Close it.
func OpenGradients(path string) (*Gradients, error) {
	file, err := npz.Open(path)
	if err != nil {
		return nil, err
	}
	g := &Gradients{File: file, Step: stepOf(path)}
	seen := map[string]bool{}
	for _, key := range file.Names {
		component, parameter, ok := strings.Cut(key, "/")
		if !ok {
			continue // something else that somebody has saved there
		}
		if !slices.Contains(g.Components, component) {
			g.Components = append(g.Components, component)
		}
		if !seen[parameter] {
			seen[parameter] = true
			g.Parameters = append(g.Parameters, parameter)
		}
	}
	if len(g.Components) == 0 {
		file.Close()
		return nil, fmt.Errorf("%s: no keys of the form COMPONENT/PARAMETER among its %d", path, len(file.Names))
	}
	return g, nil
}

// gram holds the inner products of the components' gradients over some parameters.
type gram struct {
	parameters, elements int
	products             [][]float64 // of components i <= j
}

func newGram(components int) *gram {
	m := &gram{products: make([][]float64, components)}
	for i := range m.products {
		m.products[i] = make([]float64, components)
	}
	return m
}

func (m *gram) add(o *gram) {
	m.parameters += o.parameters
	m.elements += o.elements
	for i, row := range o.products {
		for j, v := range row {
			m.products[i][j] += v
		}
	}
}

// cosines of all pairs of components; NaN where one of them is zero.
func (m *gram) cosines() (out []any) {
	for i := range m.products {
		for j := i + 1; j < len(m.products); j++ {
			cosine := math.NaN()
			if c, ok := statistics.Cosine(m.products[i][j], m.products[i][i], m.products[j][j]); ok {
				cosine = c
			}
			out = append(out, cosine)
		}
	}
	return out
}

// parameter computes the inner products of one parameter; nil when it does not exist for every component.
func (g *Gradients) parameter(name string) (*gram, error) {
	var arrays [][]float32
	for _, c := range g.Components {
		key := c + "/" + name
		if !g.Has(key) {
			return nil, nil
		}
		a, err := g.Read(key)
		if err != nil {
			return nil, err
		}
		if len(arrays) > 0 && len(a.Values) != len(arrays[0]) {
			return nil, fmt.Errorf("%s: %s has %d values, but %s/%s has %d", g.Path, key, len(a.Values),
				g.Components[0], name, len(arrays[0]))
		}
		arrays = append(arrays, a.Values)
	}
	m := newGram(len(arrays))
	m.parameters, m.elements = 1, len(arrays[0])
	for i, a := range arrays {
		for j, b := range arrays[i:] {
			for k, x := range a {
				m.products[i][i+j] += float64(x) * float64(b[k])
			}
		}
	}
	return m, nil
}

// layer is a group of parameters.
type layer struct {
	name  string
	order int
	*gram
}

// All names the group of all parameters.
const All = "all"

// layers groups parameters as rldynamic's grad_analysis.py does: embedding, layer_N, final_norm, lm_head and other, in
// this order, and all of them together at the end. Parameters that some component lacks are left out.
func (g *Gradients) layers() (list []layer, err error) {
	total := newGram(len(g.Components))
	for _, name := range g.Parameters {
		m, err := g.parameter(name)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		order, group := groupOf(name)
		i := slices.IndexFunc(list, func(l layer) bool { return l.name == group })
		if i < 0 {
			i, list = len(list), append(list, layer{group, order, newGram(len(g.Components))})
		}
		list[i].add(m)
		total.add(m)
	}
	if total.parameters == 0 {
		return nil, fmt.Errorf("%s: no parameter has a gradient of every component (%s)", g.Path,
			strings.Join(g.Components, ", "))
	}
	slices.SortFunc(list, func(a, b layer) int { return cmp.Compare(a.order, b.order) })
	return append(list, layer{name: All, gram: total}), nil
}

var layerNumber = regexp.MustCompile(`(?:^|\.)layers\.(\d+)(?:\.|$)`)

func groupOf(parameter string) (order int, name string) {
	if m := layerNumber.FindStringSubmatch(parameter); m != nil {
		order, _ = strconv.Atoi(m[1])
		return order, "layer_" + m[1]
	}
	for _, g := range []struct {
		mark, name string
		order      int
	}{{"embed_tokens", "embedding", -1}, {"lm_head", "lm_head", math.MaxInt - 1},
		{"norm", "final_norm", math.MaxInt - 2}} {
		if strings.Contains(parameter, g.mark) {
			return g.order, g.name
		}
	}
	return math.MaxInt, "other"
}

// files lists a folder's files of gradients by step.
func files(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".npz" && stepOf(e.Name()) >= 0 {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no files such as gradients_step_0.npz", dir)
	}
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(stepOf(a), stepOf(b)) })
	return paths, nil
}

// cosinesOf are the step of a file and the cosines of one parameter, or of All. Its components must be the expected
// ones, if any are.
func cosinesOf(path, name string, expected []string) (row []any, components []string, err error) {
	g, err := OpenGradients(path)
	if err != nil {
		return nil, nil, err
	}
	defer g.Close()
	if expected != nil && !slices.Equal(g.Components, expected) {
		return nil, nil, fmt.Errorf("%s holds %s, the files before it %s", path, strings.Join(g.Components, ", "),
			strings.Join(expected, ", "))
	}
	var m *gram
	switch {
	case name == All:
		layers, err := g.layers()
		if err != nil {
			return nil, nil, err
		}
		m = layers[len(layers)-1].gram
	case !slices.Contains(g.Parameters, name):
		return nil, nil, fmt.Errorf("%s has no parameter %q%s; `gyre components keys` lists them", path, name,
			nearest.Hint(name, g.Parameters))
	default:
		if m, err = g.parameter(name); err != nil {
			return nil, nil, err
		}
		if m == nil {
			return nil, nil, fmt.Errorf("%s: some component has no gradient of %s", path, name)
		}
	}
	return append([]any{g.Step}, m.cosines()...), g.Components, nil
}
