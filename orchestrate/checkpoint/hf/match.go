package hf

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/checkpoint/tensors"
)

// Entry pairs a parameter with the tensor that fills it; nil leaves it zero (a new value head).
type Entry struct {
	Parameter
	Tensor *tensors.Tensor
}

// Match finds the tensor of every parameter. Tensors that are missing, too many, of the wrong shape or not of a float
// type are listed in one error.
//
// The head follows transformers: a tied model may carry a copy of its embedding as lm_head.weight, or only that copy;
// when the two differ the model is not tied, whatever config.json says, and the returned configuration says so. For a
// value model, lm_head.weight is left out and an absent score starts from zero. notes say what of this happened.
func Match(dir string, c Config, head Head, w *Weights) (matched Config, list []Entry, notes []string, err error) {
	lm, embedding := w.Tensors[LMHeadName], w.Tensors[EmbeddingName]
	alias := map[string]*tensors.Tensor{}
	if c.Tie && lm != nil && embedding == nil {
		alias[EmbeddingName] = lm
	} else if c.Tie && lm != nil && head == LanguageModel {
		if equal, err := sameValues(lm, embedding); err != nil {
			return c, nil, nil, err
		} else if !equal {
			c.Tie = false
			notes = append(notes, fmt.Sprintf("%s: config.json ties the head to the embedding, but the two differ in the file: loaded untied",
				filepath.Base(lm.File)))
		}
	}
	var problems []string
	used := map[string]bool{LMHeadName: head == ValueModel || c.Tie}
	for _, p := range c.Parameters(head) {
		t := w.Tensors[p.Name]
		if t == nil {
			t = alias[p.Name]
		}
		used[p.Name] = true
		list = append(list, Entry{p, t})
		switch {
		case t == nil && head == ValueModel && (p.Name == ScoreName || p.Name == ScoreBiasName):
			if p.Name == ScoreName {
				notes = append(notes, dir+" has no value head (score.weight): it starts from zero")
			}
		case t == nil:
			problems = append(problems, fmt.Sprintf("missing  %s %v%s", p.Name, p.Shape, hintMissing(p.Name)))
		case !slices.Equal(t.Shape, p.Shape):
			problems = append(problems, fmt.Sprintf("shape    %s in %s: expected %v, got %v", p.Name, filepath.Base(t.File), p.Shape, t.Shape))
		case !t.DType.Float():
			problems = append(problems, fmt.Sprintf("type     %s in %s: %v, expected float32, bfloat16, float16 or float64", p.Name,
				filepath.Base(t.File), t.DType))
		}
	}
	var extra []string
	for name, t := range w.Tensors {
		if !used[name] {
			extra = append(extra, fmt.Sprintf("extra    %s %v in %s", name, t.Shape, filepath.Base(t.File)))
		}
	}
	slices.Sort(extra)
	if problems = append(problems, extra...); len(problems) > 0 {
		return c, nil, nil, mismatch(dir, c, problems)
	}
	return c, list, notes, nil
}

func hintMissing(name string) string {
	if name == LMHeadName {
		return " (config.json has tie_word_embeddings false; if the model ties its head, set it to true)"
	}
	return ""
}

func mismatch(dir string, c Config, problems []string) error {
	const most = 20
	rest := ""
	if n := len(problems); n > most {
		problems, rest = problems[:most], fmt.Sprintf("\n  … and %d more", n-most)
	}
	return fmt.Errorf("%s: the weights do not fit config.json (%s, %d layers of width %d):\n  %s%s", dir, c.Family, c.NumLayers, c.HiddenSize,
		strings.Join(problems, "\n  "), rest)
}

// sameValues compares two tensors element by element, as float32.
func sameValues(a, b *tensors.Tensor) (bool, error) {
	if !slices.Equal(a.Shape, b.Shape) || !a.DType.Float() || !b.DType.Float() {
		return false, nil
	}
	x, _, err := a.Dense(tensors.F32, nil, nil)
	if err != nil {
		return false, err
	}
	y, _, err := b.Dense(tensors.F32, nil, nil)
	return bytes.Equal(x, y), err
}
