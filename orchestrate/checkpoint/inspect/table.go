package inspect

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the description for people; the tensors only if wanted.
func (i Info) Print(w io.Writer, withTensors bool) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("path", "%s", i.Path)
	row("layout", "%s, %s", i.Layout, Size(i.Bytes))
	row("parameters", "%s", grouped(i.Parameters))
	var kinds []string
	for _, d := range i.DTypes {
		kinds = append(kinds, fmt.Sprintf("%s × %d", d.Name, d.Tensors))
	}
	row("tensors", "%s", strings.Join(kinds, ", "))
	if m := i.Model; m != nil {
		row("family", "%s (%s)", m.Family, m.Head)
		row("shape", "%d layers, width %d, %d heads of %d (%d for keys and values), intermediate %d", m.Layers, m.HiddenSize, m.Heads, m.HeadDim,
			m.KVHeads, m.IntermediateSize)
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
		row("memory", "%s to sample, %s to train (f32, and %s per token of KV cache)", Size(m.Sampling), Size(m.Training), Size(m.KVToken))
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

// Size writes bytes with a unit.
func Size(n int64) string {
	for _, u := range []struct {
		unit string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.unit)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// grouped writes 134515008 as 134,515,008.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
