package gradients

import (
	"context"
	"encoding/binary"
	"fmt"
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
// decide: the same at every step and for every part, so that inner products of projections estimate those of what was
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

// Saver writes gradients to files in the background, one file at a time. Wait ends it.
type Saver struct {
	Dir        string // "" writes nothing: over ranks all save, and one writes
	Projection bool   // of every parameter, not all of it
	World      *ranks.World
	pending    chan error
}

// FullBytes is the size of a file of full gradients.
func FullBytes(components int, parameters int64) int64 { return int64(components) * 4 * parameters }

// Save copies the gradients of the components and starts writing gradients_step_STEP.npz with keys
// COMPONENT/PARAMETER. It first waits for the file before, and reports what became of it. It is collective.
func (s *Saver) Save(ctx context.Context, step int, names []string, gradients []*torch.Gradients,
	parameters []torch.Parameter) error {
	if err := s.Wait(); err != nil {
		return err
	}
	var arrays []npz.Array
	for k, name := range names {
		for i, p := range parameters {
			shape, err := p.Tensor.Shape()
			if err != nil {
				return err
			}
			values, err := s.whole(ctx, gradients[k], i, shape)
			if err != nil {
				return err
			}
			if s.Projection && len(values) > projected {
				values, shape = project(p.Name, values), []int64{projected}
			}
			if s.Dir != "" {
				arrays = append(arrays, npz.Array{Name: name + "/" + p.Name, Shape: shape, Values: values})
			}
		}
	}
	if s.Dir == "" {
		return nil
	}
	path := filepath.Join(s.Dir, fmt.Sprintf("gradients_step_%d.npz", step))
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return err
	}
	s.pending = make(chan error, 1)
	go func(done chan<- error) {
		done <- atomicfile.Write(path, func(w io.Writer) error { return npz.Write(w, arrays) })
	}(s.pending)
	return nil
}

// whole is the gradient of parameter i, which every rank holds a shard of. It is collective.
func (s *Saver) whole(ctx context.Context, from *torch.Gradients, i int, shape []int64) ([]float32, error) {
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
	if err := checkpoint.Assemble(ctx, s.World.Data(), shard, torch.F32, data); err != nil {
		return nil, err
	}
	_, err = binary.Decode(data, binary.LittleEndian, values)
	return values, err
}

// Wait until the last file is on the disk. A nil Saver has none.
func (s *Saver) Wait() error {
	if s == nil || s.pending == nil {
		return nil
	}
	err := <-s.pending
	s.pending = nil
	return err
}
