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
)

// Gradients is one file of component gradients, with keys COMPONENT/PARAMETER.
type Gradients struct {
	file       *npz.File
	Path       string
	Step       int // in its name; -1 = none
	Components []string
	Parameters []string
	has        map[string]bool
}

var stepInName = regexp.MustCompile(`step[_-]?(\d+)`)

// OpenGradients opens a file. Close it.
func OpenGradients(path string) (*Gradients, error) {
	file, err := npz.Open(path)
	if err != nil {
		return nil, err
	}
	g := &Gradients{file: file, Path: path, Step: -1, has: map[string]bool{}}
	if m := stepInName.FindStringSubmatch(filepath.Base(path)); m != nil {
		g.Step, _ = strconv.Atoi(m[1])
	}
	for _, key := range file.Names {
		component, parameter, ok := strings.Cut(key, "/")
		if !ok {
			continue // something else that somebody has saved there
		}
		g.has[key] = true
		if !slices.Contains(g.Components, component) {
			g.Components = append(g.Components, component)
		}
		if known := "\x00" + parameter; !g.has[known] {
			g.has[known] = true
			g.Parameters = append(g.Parameters, parameter)
		}
	}
	if len(g.Components) == 0 {
		file.Close()
		return nil, fmt.Errorf("%s: no keys of the form COMPONENT/PARAMETER among its %d", path, len(file.Names))
	}
	return g, nil
}

// Close closes the file.
func (g *Gradients) Close() error { return g.file.Close() }

// Keys are those of the file.
func (g *Gradients) Keys() []string { return g.file.Names }

// Gram holds the inner products of the components' gradients over some parameters.
type Gram struct {
	Parameters int
	Elements   int64
	products   []float64 // components × components
	n          int
}

func newGram(components int) *Gram {
	return &Gram{products: make([]float64, components*components), n: components}
}

func (m *Gram) add(o *Gram) {
	m.Parameters += o.Parameters
	m.Elements += o.Elements
	for i, v := range o.products {
		m.products[i] += v
	}
}

// Norm of a component's gradient.
func (m *Gram) Norm(i int) float64 { return math.Sqrt(m.products[i*m.n+i]) }

// Cosine of two components; NaN when one of them is zero.
func (m *Gram) Cosine(i, j int) float64 {
	a, b := m.products[i*m.n+i], m.products[j*m.n+j]
	if a == 0 || b == 0 {
		return math.NaN()
	}
	return max(-1, min(1, m.products[i*m.n+j]/(math.Sqrt(a)*math.Sqrt(b))))
}

// Parameter computes the inner products of one parameter. ok is false when it does not exist for every component.
func (g *Gradients) Parameter(name string) (m *Gram, ok bool, err error) {
	var arrays [][]float32
	for _, c := range g.Components {
		key := c + "/" + name
		if !g.has[key] {
			return nil, false, nil
		}
		a, err := g.file.Read(key)
		if err != nil {
			return nil, false, err
		}
		if len(arrays) > 0 && len(a.Values) != len(arrays[0]) {
			return nil, false, fmt.Errorf("%s: %s has %d values, but %s/%s has %d", g.Path, key, len(a.Values),
				g.Components[0], name, len(arrays[0]))
		}
		arrays = append(arrays, a.Values)
	}
	m = newGram(len(arrays))
	m.Parameters, m.Elements = 1, int64(len(arrays[0]))
	for i, a := range arrays {
		for j := i; j < len(arrays); j++ {
			b, sum := arrays[j], 0.0
			for k, x := range a {
				sum += float64(x) * float64(b[k])
			}
			m.products[i*m.n+j], m.products[j*m.n+i] = sum, sum
		}
	}
	return m, true, nil
}

// Layer is a group of parameters.
type Layer struct {
	Name string
	Gram
}

// All names the group of all parameters.
const All = "all"

// Layers groups parameters as rldynamic's grad_analysis.py does: embedding, layer_N, final_norm, lm_head and other, in
// this order, and all of them together at the end. Parameters that some component lacks are left out.
func (g *Gradients) Layers() ([]Layer, error) {
	groups := map[string]*Gram{}
	total := newGram(len(g.Components))
	for _, name := range g.Parameters {
		m, ok, err := g.Parameter(name)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		group := groupOf(name)
		if groups[group] == nil {
			groups[group] = newGram(len(g.Components))
		}
		groups[group].add(m)
		total.add(m)
	}
	if total.Parameters == 0 {
		return nil, fmt.Errorf("%s: no parameter has a gradient of every component (%s)", g.Path,
			strings.Join(g.Components, ", "))
	}
	var list []Layer
	for name, m := range groups {
		list = append(list, Layer{name, *m})
	}
	slices.SortFunc(list, func(a, b Layer) int {
		ka, na := place(a.Name)
		kb, nb := place(b.Name)
		return cmp.Or(cmp.Compare(ka, kb), cmp.Compare(na, nb))
	})
	return append(list, Layer{All, *total}), nil
}

func groupOf(parameter string) string {
	parts := strings.Split(parameter, ".")
	for i := 0; i+1 < len(parts); i++ {
		if parts[i] == "layers" {
			if _, err := strconv.Atoi(parts[i+1]); err == nil {
				return "layer_" + parts[i+1]
			}
		}
	}
	for _, g := range [][2]string{{"embed_tokens", "embedding"}, {"lm_head", "lm_head"}, {"norm", "final_norm"}} {
		if strings.Contains(parameter, g[0]) {
			return g[1]
		}
	}
	return "other"
}

func place(group string) (kind, number int) {
	if n, is := strings.CutPrefix(group, "layer_"); is {
		number, _ = strconv.Atoi(n)
		return 1, number
	}
	return map[string]int{"embedding": 0, "final_norm": 2, "lm_head": 3}[group] + map[string]int{"other": 4}[group], 0
}

// Files lists a folder's files of gradients by step.
func Files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	type numbered struct {
		step int
		path string
	}
	var list []numbered
	for _, e := range entries {
		m := stepInName.FindStringSubmatch(e.Name())
		if m == nil || filepath.Ext(e.Name()) != ".npz" {
			continue
		}
		step, err := strconv.Atoi(m[1])
		if err == nil {
			list = append(list, numbered{step, filepath.Join(dir, e.Name())})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no files such as gradients_step_0.npz", dir)
	}
	slices.SortFunc(list, func(a, b numbered) int { return cmp.Compare(a.step, b.step) })
	paths := make([]string, len(list))
	for i, n := range list {
		paths[i] = n.path
	}
	return paths, nil
}

// Series are the cosines of pairs of components over the steps, one row per file.
type Series struct {
	Pairs     [][2]string
	Steps     []int
	Cosines   [][]float64 // per step, per pair
	Low, High [][]float64 // of the band in which unrelated components would lie; nil where it is not known
	Skipped   []string    // files that could not be read, and why
}

// Pairs of names, each once, in order.
func pairsOf(names []string) (pairs [][2]string) {
	for i := range names {
		for j := i + 1; j < len(names); j++ {
			pairs = append(pairs, [2]string{names[i], names[j]})
		}
	}
	return pairs
}

// OverTime follows one parameter (or all of them, with name All) through a folder's files. Files that cannot be read
// are skipped: a run that was killed may have left one.
func OverTime(dir, name string) (*Series, error) {
	paths, err := Files(dir)
	if err != nil {
		return nil, err
	}
	s := &Series{}
	var names []string
	for _, path := range paths {
		step, m, file, err := one(path, name, names)
		if err != nil {
			s.Skipped = append(s.Skipped, err.Error())
			continue
		}
		if names == nil {
			names, s.Pairs = file, pairsOf(file)
		}
		var row []float64
		for i := range names {
			for j := i + 1; j < len(names); j++ {
				row = append(row, m.Cosine(i, j))
			}
		}
		s.Steps, s.Cosines = append(s.Steps, step), append(s.Cosines, row)
	}
	if names == nil {
		return nil, fmt.Errorf("%s: none of %d files could be used; the first: %s", dir, len(paths), s.Skipped[0])
	}
	return s, nil
}

func one(path, name string, expected []string) (step int, m *Gram, names []string, err error) {
	g, err := OpenGradients(path)
	if err != nil {
		return 0, nil, nil, err
	}
	defer g.Close()
	if expected != nil && !slices.Equal(g.Components, expected) {
		return 0, nil, nil, fmt.Errorf("%s holds %s, the files before it %s", path, strings.Join(g.Components, ", "),
			strings.Join(expected, ", "))
	}
	if name == All {
		layers, err := g.Layers()
		if err != nil {
			return 0, nil, nil, err
		}
		return g.Step, &layers[len(layers)-1].Gram, g.Components, nil
	}
	if !slices.Contains(g.Parameters, name) {
		return 0, nil, nil, fmt.Errorf("%s has no parameter %q%s; `gyre components keys` lists them", path, name,
			nearest.Hint(name, g.Parameters))
	}
	m, ok, err := g.Parameter(name)
	if err == nil && !ok {
		err = fmt.Errorf("%s: some component has no gradient of %s", path, name)
	}
	return g.Step, m, g.Components, err
}
