package gradients

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gyre/internal/npz"
	"gyre/orchestrate/config"
	"gyre/orchestrate/experiment"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/loop/train"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// componentLine is a report as it is logged.
func componentLine(r *ComponentReport) metrics.Line {
	line := metrics.Line{}
	line.Add(r.Metrics())
	return line
}

// measured measures the golden episodes under a loss that has an entropy term and a KL term, whose gradient is zero:
// the policy is its own reference.
func measured(t *testing.T, o ComponentOptions, change func(*Subject)) (*ComponentReport, error) {
	t.Helper()
	g := readGolden(t)
	s := g.subject(t, g.model(t))
	s.Objective.EntropyCoef, s.Objective.KL, s.Objective.KLCoef = .1, torch.KLK2, .1
	s.Batch.Reference, s.Columns = s.Batch.Old, LossTerms(s.Objective)
	if change != nil {
		change(&s)
	}
	episodes := g.episodes()
	for i := range episodes {
		n := len(episodes[i].Mask)
		episodes[i].Components["same"] = make([]float64, n)
		episodes[i].Components["same"][n-1] = .1
	}
	a := Estimate(episodes, config.Components{Mode: "exact", Names: []string{"correctness", "format", "length",
		"same"}},
		map[string]float64{"correctness": .34, "format": .33, "length": .33, "same": 0},
		config.Algorithm{Advantage: "grpo", NormByStd: true})
	return MeasureComponents(context.Background(), s, g.UID, a, o)
}

// The rewards of both components of a pair are permuted, so that half of the permutations, rounded up, are rounds: at
// a confidence of 0.8 a band needs nine of them.
func TestBandsNeedRounds(t *testing.T) {
	for permutations, want := range map[int]bool{0: false, 16: false, 17: true} {
		r, err := measured(t, ComponentOptions{Permutations: permutations, Confidence: .8, Seed: 3, Step: 5}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, banded := componentLine(r)["grad_components/cosine/format/length/low"]; banded != want {
			t.Errorf("%d permutations: band %v, want %v", permutations, banded, want)
		}
	}
}

// Terms and parts stand in their order; bands are there where rewards are, and the same for the same seed; what does
// not exist is null everywhere.
func TestTermsAndBands(t *testing.T) {
	o := ComponentOptions{Permutations: 200, Confidence: .9, Seed: 3, Step: 5}
	whole, err := measured(t, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"correctness", "format", "length", "same", Entropy, KL, Total}
	if !slices.Equal(whole.Names, want) || whole.Components != 4 {
		t.Fatalf("names %v, %d components", whole.Names, whole.Components)
	}
	one := componentLine(whole)
	n := len(want)
	for i, a := range want {
		for j := i + 1; j < n; j++ {
			key := "grad_components/cosine/" + a + "/" + want[j]
			_, banded := one[key+"/low"]
			undefined := a == "same" || want[j] == "same" || a == KL || want[j] == KL
			if expected := !undefined && (a != Entropy || want[j] == Total); banded != expected {
				t.Errorf("%s: band %v, expected %v", key, banded, expected)
			}
			if v := one[key]; (v == nil) != undefined {
				t.Errorf("%s = %v", key, v)
			}
		}
	}
	again, err := measured(t, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key := "grad_components/cosine/correctness/format/low"; componentLine(again)[key] != one[key] {
		t.Errorf("%s differs between two measurements", key)
	}
	var table strings.Builder
	if err := whole.WriteCSV(&table, true); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	scopes := 1 + 4 + 5 + 12 // all; embedding, layer, norm, head; five kinds; parameters
	if len(lines) != 1+scopes*n*(n-1)/2 || !strings.HasPrefix(lines[3], "global,all,correctness,same,,,,") ||
		strings.Contains(table.String(), "NaN") {
		t.Errorf("%d lines\n%s", len(lines), strings.Join(lines[:8], "\n"))
	}
	text := whole.Console()
	if !strings.Contains(text, "unrelated rewards") || strings.Contains(text, "NaN") || strings.Count(text, "+") < n {
		t.Errorf("table for people:\n%s", text)
	}
	if whole.Bytes <= experiment.ComponentBytes(1000, experiment.ComponentBuffers(4, 2), 8, 0) {
		t.Errorf("%d bytes", whole.Bytes)
	}
}

// Layers' and kinds' inner products add up to the whole's.
func TestScopesAddUp(t *testing.T) {
	r, err := measured(t, ComponentOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	each := scopes("parameter", r.parameters, func(name string) string { return name })
	for _, s := range append(r.scopes(), each...) {
		sums[s.kind] += r.gram.inner(0, 2, s)
	}
	for kind, sum := range sums {
		if math.Abs(sum-sums["global"]) > 1e-12*math.Abs(sum) {
			t.Errorf("%s: %v, all of it is %v", kind, sum, sums["global"])
		}
	}
	for name, want := range map[string][2]string{
		"model.embed_tokens.weight":              {"embed_tokens", "embedding"},
		"model.layers.12.self_attn.q_proj.bias":  {"layers.12", "attention"},
		"model.layers.0.self_attn.q_norm.weight": {"layers.0", "norm"},
		"model.layers.3.mlp.up_proj.weight":      {"layers.3", "mlp"},
		"model.norm.weight":                      {"norm", "norm"}, "lm_head.weight": {"lm_head", "head"},
		"score.weight": {"score", "other"}, "layers": {"layers", "other"},
	} {
		if got := [2]string{Layer(name), Kind(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Advantages of single tokens give what adding up the single tokens' gradients gives, in buckets too, and the sum of
// the components is the total.
func TestTokenwiseAdvantages(t *testing.T) {
	g := readGolden(t)
	s := g.subject(t, g.model(t))
	weights := map[string]float64{"correctness": .34, "format": .33, "length": .33}
	r := rand.New(rand.NewPCG(2, 9))
	episodes := g.episodes()
	for i := range episodes { // rewards of all components anywhere in the reply
		e := &episodes[i]
		n := len(e.Mask)
		e.Values, e.Rewards, e.TurnEnds = make([]float64, n), make([]float64, n), []int{n - 1}
		for at, sampled := range e.Mask {
			e.Values[at] = r.NormFloat64()
			for _, name := range []string{"correctness", "format", "length"} {
				if sampled {
					e.Components[name][at] += r.NormFloat64()
				}
				e.Rewards[at] += weights[name] * e.Components[name][at]
			}
		}
	}
	a := Estimate(episodes, config.Components{Mode: "exact", Names: []string{"correctness", "format", "length"}},
		weights,
		config.Algorithm{Advantage: "gae", Gamma: .9, Lambda: .8})
	kept := map[string][]float32{}
	report, err := MeasureComponents(context.Background(), s, g.UID, a, ComponentOptions{Permutations: 40,
		Confidence: .8,
		Keep: func(taken Taken) (err error) {
			for k, name := range taken.Names {
				if kept[name], err = all(taken.Gradients[k], 0, 0); err != nil {
					return err
				}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"correctness", "format", "length", Baseline, Total}; !slices.Equal(report.Names, want) {
		t.Fatalf("names %v", report.Names)
	}
	if e := report.checks["sum_error"].(float64); e > 1e-5 {
		t.Errorf("the components' sum is off by %v", e)
	}
	if band, ok := report.bands[[2]int{0, 1}]; !ok || band.Low >= band.High {
		t.Errorf("band %v, %v", band, ok)
	}
	sum, err := torch.NewGradients(s.Policy.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer sum.Close()
	for i := range episodes {
		for token := range a.Tokens[0][i] {
			one := make([]float32, len(a.Tokens[0][i]))
			one[token] = a.Tokens[0][i][token]
			column := []train.Column{{Name: "one", Advantages: [][]float32{one}, Into: sum}}
			if _, err := s.Policy.Alone(s.Batch.Take([]int{i}), 0, s.Objective, column); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := all(sum, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range want {
		if math.Abs(float64(v-kept["correctness"][i])) > 1e-6 {
			t.Errorf("entry %d: %v, token by token %v", i, kept["correctness"][i], v)
		}
	}
}

func TestComponentsThatCannotBeMeasured(t *testing.T) {
	stop := errors.New("no")
	if _, err := measured(t, ComponentOptions{Keep: func(Taken) error { return stop }}, nil); !errors.Is(err, stop) {
		t.Errorf("a file that cannot be written: %v", err)
	}
	_, err := measured(t, ComponentOptions{},
		func(s *Subject) { s.Batch.Weights[0][len(s.Batch.Weights[0])-1] = 3e38 })
	if !errors.Is(err, torch.ErrNotFinite) || !strings.Contains(err.Error(), "model.embed_tokens.weight") {
		t.Errorf("a gradient that is not finite: %v", err)
	}
}

// all are the values of a gradient that is here whole.
func all(g *torch.Gradients, i int, _ int64) ([]float32, error) {
	t, err := g.Tensor(i)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Float32s()
}

// Files appear whole under their names, in full or as projections that keep inner products; a folder that cannot be
// made is an error.
func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gradient_analysis_x")
	keep := func(taken Taken) error {
		save := func(file string, from, to int) error {
			part := Taken{taken.Names[from:to], taken.Gradients[from:to], taken.Parameters}
			return part.Save(context.Background(), filepath.Join(dir, file), ranks.Alone(), false)
		}
		return errors.Join(save("gradients_step_0.npz", 0, 2), save("gradients_step_1.npz", 1, 3))
	}
	r, err := measured(t, ComponentOptions{Keep: keep}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for step, parts := range [][]string{{"correctness", "format"}, {"format", "length"}} {
		arrays := readArrays(t, filepath.Join(dir, []string{"gradients_step_0.npz", "gradients_step_1.npz"}[step]))
		squares := map[string]float64{}
		for _, a := range arrays {
			part, parameter, _ := strings.Cut(a.Name, "/")
			if !strings.HasPrefix(parameter, "model.") && parameter != "lm_head.weight" {
				t.Errorf("key %q", a.Name)
			}
			for _, v := range a.Values {
				squares[part] += float64(v) * float64(v)
			}
		}
		for _, part := range parts {
			i := slices.Index(r.Names, part)
			if want := r.gram.inner(i, i, everything); len(squares) != 2 || math.Abs(squares[part]-want) > 1e-9*want {
				t.Errorf("step %d: the square of %s is %v, want %v", step, part, squares[part], want)
			}
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%d files in the folder", len(left))
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(filepath.Dir(dir), "file", "x")
	if _, err := measured(t, ComponentOptions{Keep: keep}, nil); err == nil {
		t.Error("a folder below a file: no error")
	}
}

func TestProjection(t *testing.T) {
	const n = 200000
	a, b := make([]float32, n), make([]float32, n)
	var aa, bb, ab float64
	for i := range a {
		x := math.Sin(float64(i * i % 1009))
		a[i], b[i] = float32(x), float32(0.6*x+0.8*math.Cos(float64(i*7%911)))
		aa, bb, ab = aa+float64(a[i])*float64(a[i]), bb+float64(b[i])*float64(b[i]), ab+float64(a[i])*float64(b[i])
	}
	p, q := project("w", a), project("w", b)
	if len(p) != projected || !slices.Equal(p, project("w", a)) || slices.Equal(p, project("v", a)) {
		t.Fatalf("%d numbers", len(p))
	}
	var pp, qq, pq float64
	for i := range p {
		pp, qq, pq = pp+float64(p[i])*float64(p[i]), qq+float64(q[i])*float64(q[i]), pq+float64(p[i])*float64(q[i])
	}
	if got, want := pq/math.Sqrt(pp*qq), ab/math.Sqrt(aa*bb); math.Abs(got-want) > 4/math.Sqrt(projected) {
		t.Errorf("cosine of the projections %v, of the vectors %v", got, want)
	}
	if math.Abs(pp/aa-1) > 6/math.Sqrt(projected) {
		t.Errorf("the square became %v times itself", pp/aa)
	}
	if short := []float32{1, 2}; !slices.Equal(project("w", short), short) {
		t.Error("a short vector is projected")
	}
}

// (1, 0) and half of (0, 2) make half of (2, 2), at its angle; the sum without weights lies elsewhere.
func TestSelfChecks(t *testing.T) {
	r := &ComponentReport{Names: []string{"a", "b", Total}, Components: 2, Bytes: 3 << 19,
		parameters: []torch.Parameter{{Name: "x"}},
		gram:       gram{3, [][]float64{{1}, {0}, {2}, {4}, {4}, {8}}}}
	r.check(Advantages{Weights: []float64{1, .5}, Linear: true})
	v := componentLine(r)
	if got := v["grad_components/check/sum_error"].(float64); math.Abs(got-.5) > 1e-12 {
		t.Errorf("the sum is off by %v, want 0.5", got)
	}
	if got, want := v["grad_components/check/sum_cosine"].(float64), 6/math.Sqrt(40); math.Abs(got-want) > 1e-12 {
		t.Errorf("cosine of the sum %v, want %v", got, want)
	}
	if v["grad_components/memory_mib"] != 1.5 {
		t.Errorf("%v MiB", v["grad_components/memory_mib"])
	}
	pairs := 0
	for key := range v {
		if strings.HasPrefix(key, "grad_components/cosine/") {
			pairs++
		}
	}
	if pairs != 3 {
		t.Errorf("%d cosines of three gradients", pairs)
	}
	r.gram = gram{3, [][]float64{{1}, {0}, {0}, {4}, {0}, {0}}}
	r.check(Advantages{Weights: []float64{1, .5}, Linear: true})
	for key, value := range componentLine(r) {
		if (strings.HasPrefix(key, "grad_components/check/") || strings.Contains(key, "cosine/b/total")) &&
			value != nil {
			t.Errorf("without a total %s = %v", key, value)
		}
	}
}

// readArrays reads all arrays of a file.
func readArrays(t *testing.T, path string) (arrays []npz.Array) {
	t.Helper()
	f, err := npz.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range f.Names {
		a, err := f.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		arrays = append(arrays, a)
	}
	return arrays
}
