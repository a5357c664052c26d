package convert

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"

	"gyre/internal/atomicfile"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/checkpoint/hf"
	"gyre/orchestrate/model/checkpoint/weights"
	"gyre/torch"
)

// Info describes a checkpoint. Model and Tokenizer are nil where there is none.
type Info struct {
	Path       string     `json:"path"`
	Layout     string     `json:"layout"` // "safetensors, 2 shards", "GGUF version 3"
	Bytes      int64      `json:"bytes"`  // of the files that hold tensors
	Parameters int64      `json:"parameters"`
	DTypes     []DType    `json:"dtypes"`
	Model      *Model     `json:"model,omitempty"`
	Tokenizer  *Tokenizer `json:"tokenizer,omitempty"`
	Memory     *Memory    `json:"memory,omitempty"`
	Tensors    []Tensor   `json:"tensors,omitempty"`
	Notes      []string   `json:"notes,omitempty"`
}

// DType counts the tensors of one stored type.
type DType struct {
	Name     string `json:"name"`
	Tensors  int    `json:"tensors"`
	Elements int64  `json:"elements"`
}

// Tensor is one tensor in a file.
type Tensor struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
	File  string  `json:"file"`
}

// Model is what config.json says.
type Model struct {
	Family           string   `json:"family"`
	Head             string   `json:"head"` // "language model, tied", "language model" or "value"
	HiddenSize       int64    `json:"hidden_size"`
	Layers           int64    `json:"layers"`
	Heads            int64    `json:"heads"`
	KVHeads          int64    `json:"kv_heads"`
	HeadDim          int64    `json:"head_dim"`
	IntermediateSize int64    `json:"intermediate_size"`
	VocabSize        int64    `json:"vocab_size"`
	MaxPositions     int64    `json:"max_positions"`
	RopeType         string   `json:"rope_type"`
	RopeTheta        float64  `json:"rope_theta"`
	Experts          *Experts `json:"experts,omitempty"`
}

// Experts are those of a mixture.
type Experts struct {
	Count    int64 `json:"count"`
	PerToken int64 `json:"per_token"`
	Width    int64 `json:"width"`
	Shared   int64 `json:"shared"` // width of an MLP beside them
	Layers   int64 `json:"layers"` // that have them
}

// Tokenizer is what the tokenizer's files give.
type Tokenizer struct {
	VocabSize    int     `json:"vocab_size"`
	StopIDs      []int32 `json:"stop_ids"`
	ChatTemplate bool    `json:"chat_template"`
}

// Memory is what weights and what grows with them take in f32 (bytes). Activations and KV cache come on top.
type Memory struct {
	Sampling int64 `json:"sampling"` // weights and their packed copies
	Training int64 `json:"training"` // and gradients and AdamW's moments
	KVToken  int64 `json:"kv_per_token"`
}

// Inspect says what a model directory or a file of tensors holds without loading it.
func Inspect(path string) (Info, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Info{}, err
	}
	if info.IsDir() {
		return directory(path)
	}
	f, err := weights.Open(path)
	if err != nil {
		return Info{}, fmt.Errorf("%w (a model directory is read as well)", err)
	}
	defer f.Close()
	out := describe(path, f.Layout, f.Tensors)
	if f.GGUF != nil {
		if name, ok := f.GGUF["general.name"]; ok {
			out.Notes = append(out.Notes, fmt.Sprintf("%v, architecture %v", name, f.GGUF["general.architecture"]))
		}
		out.Notes = append(out.Notes, "`gyre model convert` makes a model directory of it")
	}
	return out, nil
}

// describe fills in what follows from the tensors alone.
func describe(path, layout string, list []*weights.Tensor) Info {
	out := Info{Path: path, Layout: layout, DTypes: countKinds(list)}
	files := map[string]bool{}
	for _, t := range list {
		out.Parameters += t.Elements()
		if info, err := os.Stat(t.File); err == nil && !files[t.File] {
			out.Bytes += info.Size()
		}
		files[t.File] = true
		out.Tensors = append(out.Tensors, Tensor{Name: t.Name, DType: t.Kind, Shape: append([]int64{}, t.Shape...),
			File: filepath.Base(t.File)})
	}
	return out
}

func countKinds(list []*weights.Tensor) []DType {
	kinds := map[string]DType{}
	for _, t := range list {
		have := kinds[t.Kind]
		kinds[t.Kind] = DType{t.Kind, have.Tensors + 1, have.Elements + t.Elements()}
	}
	return slices.SortedFunc(maps.Values(kinds), func(a, b DType) int { return strings.Compare(a.Name, b.Name) })
}

func kindsText(kinds []DType) string {
	var parts []string
	for _, d := range kinds {
		parts = append(parts, fmt.Sprintf("%s × %d", d.Name, d.Tensors))
	}
	return strings.Join(parts, ", ")
}

func directory(path string) (Info, error) {
	m, err := hf.Open(path, nil)
	if err != nil {
		return Info{}, err
	}
	defer m.Weights.Close()
	c, w := m.Config, m.Weights
	list := slices.SortedFunc(maps.Values(w.Tensors), func(a, b *weights.Tensor) int {
		return strings.Compare(a.Name, b.Name)
	})
	out := describe(path, w.Layout, list)
	out.Notes = m.Notes
	out.Parameters = c.Count(c.Head)
	out.Model = shapeOf(c)
	// Four bytes per number: weights and packed copies; for training as much again for gradients, twice for moments.
	out.Memory = &Memory{Sampling: 8 * out.Parameters, Training: 20 * out.Parameters,
		KVToken: 8 * c.NumLayers * c.NumKVHeads * c.HeadDim}
	if atomicfile.Exists(path, "tokenizer.json") {
		t, err := chat.Load(path)
		if err != nil {
			out.Notes = append(out.Notes, "tokenizer: "+err.Error())
		} else {
			out.Tokenizer = &Tokenizer{VocabSize: t.VocabSize(), StopIDs: t.StopIDs(), ChatTemplate: t.HasTemplate()}
		}
	}
	return out, nil
}

func shapeOf(c hf.Config) *Model {
	head := "language model"
	if c.Head == torch.HeadValue {
		head = "value"
	} else if c.TieEmbeddings {
		head += ", tied"
	}
	m := &Model{Family: string(c.Family), Head: head, HiddenSize: c.HiddenSize, Layers: c.NumLayers,
		Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, IntermediateSize: c.IntermediateSize,
		VocabSize: c.VocabSize, MaxPositions: c.MaxPositions, RopeType: c.RopeType(), RopeTheta: c.RopeTheta}
	if s := c.Shape; s.Experts > 0 {
		m.Experts = &Experts{Count: s.Experts, PerToken: s.ChosenExperts, Width: s.ExpertSize, Shared: s.SharedSize,
			Layers: c.Mixtures()}
	}
	return m
}

// Print writes the description for people; the tensors only if wanted.
func (i Info) Print(w io.Writer, withTensors bool) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("path", "%s", i.Path)
	row("layout", "%s, %s", i.Layout, humanize.IBytes(uint64(i.Bytes)))
	row("parameters", "%s", humanize.Comma(i.Parameters))
	row("tensors", "%s", kindsText(i.DTypes))
	if m := i.Model; m != nil {
		row("family", "%s (%s)", m.Family, m.Head)
		row("shape", "%d layers, width %d, %d heads of %d (%d for keys and values), intermediate %d", m.Layers,
			m.HiddenSize, m.Heads, m.HeadDim, m.KVHeads, m.IntermediateSize)
		if e := m.Experts; e != nil {
			row("experts", "%d of width %d in %d layers, %d for each token, beside them an MLP of %d", e.Count, e.Width,
				e.Layers, e.PerToken, e.Shared)
		}
		row("vocabulary", "%d", m.VocabSize)
		row("positions", "%d, rotary base %g (%s)", m.MaxPositions, m.RopeTheta, m.RopeType)
	}
	if k := i.Tokenizer; k != nil {
		template := "no chat template"
		if k.ChatTemplate {
			template = "chat template"
		}
		row("tokenizer", "%d tokens, stops at %v, %s", k.VocabSize, k.StopIDs, template)
	} else if i.Model != nil {
		row("tokenizer", "none: rows of token ids only")
	}
	if m := i.Memory; m != nil {
		row("memory", "%s to sample, %s to train (f32, and %s per token of KV cache)",
			humanize.IBytes(uint64(m.Sampling)), humanize.IBytes(uint64(m.Training)),
			humanize.IBytes(uint64(m.KVToken)))
	}
	for _, n := range i.Notes {
		row("note", "%s", n)
	}
	if withTensors {
		fmt.Fprintln(t)
		for _, x := range i.Tensors {
			fmt.Fprintf(t, "%s\t%s\t%v\t%s\n", x.Name, x.DType, x.Shape, x.File)
		}
	}
	return t.Flush()
}
