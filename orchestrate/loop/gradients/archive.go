package gradients

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
	"gyre/internal/npz"
	"gyre/orchestrate/loop/ranks"
	"gyre/orchestrate/model/checkpoint"
	"gyre/torch"
)

// projected is how many numbers a projection keeps of a parameter: cosines of projections are off by about
// 1/√projected.
const projected = 4096

// project sums the values into few, each under a sign and at a place that only its index and the parameter's name
// decide: the same at every step and for every component, so that inner products of projections estimate those of what was
// projected.
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

// FullBytes is the size of a file of full gradients.
func FullBytes(components int, parameters int64) int64 { return int64(components) * 4 * parameters }

// Save writes the gradients of components to an archive with keys COMPONENT/PARAMETER, in full or as projections. It
// is collective; a rank whose path is empty writes nothing.
func Save(ctx context.Context, path string, world *ranks.World, names []string, gradients []*torch.Gradients,
	parameters []torch.Parameter, projection bool) error {
	var arrays []npz.Array
	for k, name := range names {
		for i, p := range parameters {
			shape, err := p.Tensor.Shape()
			if err != nil {
				return err
			}
			values, err := whole(ctx, world, gradients[k], i, shape)
			if err != nil {
				return err
			}
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, func(w io.Writer) error { return npz.Write(w, arrays) })
}

// whole is the gradient of parameter i, which every rank holds a shard of. It is collective.
func whole(ctx context.Context, world *ranks.World, from *torch.Gradients, i int, shape []int64) ([]float32, error) {
	shard, err := from.Shard(i)
	if err != nil {
		return nil, err
	}
	defer shard.Tensor.Close()
	entries := int64(1)
	for _, n := range shape {
		entries *= n
	}
	data, values := make([]byte, 4*entries), make([]float32, entries)
	if err := checkpoint.Assemble(ctx, world.Group(), shard, torch.F32, data); err != nil {
		return nil, err
	}
	_, err = binary.Decode(data, binary.LittleEndian, values)
	return values, err
}
