package gradients

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
	"gyre/internal/npz"
	"gyre/torch"
)

// projected is how many numbers a projection keeps of a parameter: cosines of projections are off by about 1/√projected.
const projected = 4096

// project sums the values into few, each under a sign and at a place that only its index and the parameter's name decide: the same at
// every step and for every part, so that inner products of projections estimate those of what was projected.
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
	Dir        string // "" writes nothing: where gradients are spread over processes, all save, and one writes
	Projection bool   // of every parameter, not all of it
	// Values are those of parameter i, of so many entries: in the process that writes, all of them.
	Values  func(g *torch.Gradients, i int, entries int64) ([]float32, error)
	pending chan error
}

// FullBytes is the size of a file of full gradients.
func FullBytes(parts int, parameters int64) int64 { return int64(parts) * 4 * parameters }

// Save copies the gradients of the parts and starts writing gradients_step_STEP.npz with keys PART/PARAMETER. It first waits for the file
// before, and reports what became of it.
func (s *Saver) Save(step int, names []string, gradients []*torch.Gradients, parameters []torch.Parameter) error {
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
			entries := int64(1)
			for _, n := range shape {
				entries *= n
			}
			values, err := s.Values(gradients[k], i, entries)
			if err != nil {
				return err
			}
			if s.Dir == "" {
				continue
			}
			if s.Projection {
				if short := project(p.Name, values); len(short) < len(values) {
					values, shape = short, []int64{int64(len(short))}
				}
			}
			arrays = append(arrays, npz.Array{Name: name + "/" + p.Name, Shape: shape, Values: values})
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

// Wait until the last file is on the disk. A nil Saver has none.
func (s *Saver) Wait() error {
	if s == nil || s.pending == nil {
		return nil
	}
	err := <-s.pending
	s.pending = nil
	return err
}
