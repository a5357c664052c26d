package gradients

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"

	"gyre/internal/atomicfile"
	"gyre/internal/npz"
	"gyre/internal/table"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/model/checkpoint"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// WriteFiles puts an analysed step into a folder: gradient_analysis_metrics_step_N.json with all its metrics and
// tables, the groups' reward standard deviations (gradient_analysis_bucket_rv_table_step_N.csv) and, with their
// gradient norms, gradient_analysis_group_table_step_N.csv; "prefilter_" stands before "step" for the batch before
// the filter. Files are replaced whole.
func WriteFiles(dir string, step int, line metrics.Line) error {
	write := func(what, extension string, content func(io.Writer) error) error {
		name := fmt.Sprintf("gradient_analysis_%sstep_%d.%s", what, step, extension)
		return atomicfile.Write(filepath.Join(dir, name), content)
	}
	failed := write("metrics_", "json", func(w io.Writer) error { return writeJSON(w, step, line) })
	for prefix, before := range map[string]string{"grad_norm": "", "grad_norm_prefilter": "prefilter_"} {
		groups, ok := line[prefix+"/group_table"].(metrics.Table)
		if !ok {
			continue
		}
		for what, columns := range map[string]int{"bucket_rv_table_": 3, "group_table_": len(groups.Columns)} {
			failed = errors.Join(failed, write(what+before, "csv", func(w io.Writer) error {
				return writeCSV(w, groups, columns, line["grad_analysis/profile"])
			}))
		}
	}
	return failed
}

// writeJSON writes a line as one indented object, with NaN and infinities as in metrics.jsonl.
func writeJSON(w io.Writer, step int, line metrics.Line) error {
	text, err := metrics.Encode(step, line)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// writeCSV writes the first columns of the groups, and last the profile.
func writeCSV(w io.Writer, groups metrics.Table, columns int, profile any) error {
	t := table.New(append(groups.Columns[:columns:columns], "profile")...)
	for _, row := range groups.Rows {
		t.Add(append(row[:columns:columns], profile)...)
	}
	return t.WriteCSV(w)
}

// projected is how many numbers a projection keeps of a parameter: cosines of projections are off by about
// 1/√projected.
const projected = 4096

// project sums the values into few, each under a sign and at a place that only its index and the parameter's name
// decide: the same at every step and for every component, so that inner products of projections estimate those of what
// was projected.
func project(name string, values []float32) []float32 {
	if len(values) <= projected {
		return values
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	seed := h.Sum64()
	out := make([]float32, projected)
	for i, v := range values {
		x := splitmix(seed + uint64(i)*0x9e3779b97f4a7c15)
		if x>>63 == 1 {
			v = -v
		}
		out[x%projected] += v
	}
	return out
}

// splitmix is the output function of SplitMix64 (Steele, Lea and Flood 2014).
func splitmix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Save writes gradients to an archive with keys NAME/PARAMETER, in full or as projections. It is collective; a rank
// whose path is empty writes nothing.
func (t Taken) Save(ctx context.Context, path string, world *ranks.World, projection bool) error {
	var arrays []npz.Array
	for k, name := range t.Names {
		for i, p := range t.Parameters {
			values, err := whole(ctx, world, t.Gradients[k], i, p)
			if err != nil {
				return err
			}
			shape := p.Shape
			if projection && len(values) > projected {
				values, shape = project(p.Name, values), []int64{projected}
			}
			if path != "" {
				arrays = append(arrays, npz.Array{Name: name + "/" + p.Name, Shape: shape, Values: values})
			}
		}
	}
	if path == "" {
		return nil
	}
	return atomicfile.Write(path, func(w io.Writer) error { return npz.Write(w, arrays) })
}

// whole is the gradient of p, parameter i, which every rank holds a shard of. It is collective.
func whole(ctx context.Context, world *ranks.World, from *torch.Gradients, i int,
	p torch.Parameter) ([]float32, error) {
	shard, err := from.Shard(i)
	if err != nil {
		return nil, err
	}
	defer shard.Tensor.Close()
	data, values := make([]byte, 4*p.Elements()), make([]float32, p.Elements())
	if err := checkpoint.Assemble(ctx, world.Group(), shard, torch.F32, data); err != nil {
		return nil, err
	}
	_, err = binary.Decode(data, binary.LittleEndian, values)
	return values, err
}
