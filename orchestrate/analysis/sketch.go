package analysis

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"gyre/torch"
)

// sketchDimension is a prime, so that neither rows nor columns of a matrix fall on the same places.
const sketchDimension = 65521

// vector remembers a gradient for inner products with others: the gradient itself, or a sketch of it.
type vector struct {
	full   *torch.Gradients
	sketch []float32
}

func (v vector) dot(w vector) (float64, error) {
	if v.full != nil {
		product, _, err := v.full.Dot(w.full)
		return product, err
	}
	sum := 0.0
	for i, x := range v.sketch {
		sum += float64(x) * float64(w.sketch[i])
	}
	return sum, nil
}

// sum adds up sketches: the sketch of a sum is the sum of the sketches.
func sum(parts []vector) vector {
	out := make([]float32, sketchDimension)
	for _, p := range parts {
		for i, x := range p.sketch {
			out[i] += x
		}
	}
	return vector{sketch: out}
}

// sketcher projects gradients to few dimensions by random signs (a count sketch, Charikar, Chen and Farach-Colton 2002, with element i
// in place i mod m): inner products stay unbiased, with a standard deviation of about ‖a‖·‖b‖/√m, 0.4 % here.
type sketcher struct{ bytes []byte }

func (s *sketcher) of(g *torch.Gradients, parameters int) (vector, error) {
	out := make([]float32, sketchDimension)
	place, word := 0, uint64(0)
	for i := range parameters {
		data, err := s.read(g, i)
		if err != nil {
			return vector{}, err
		}
		for len(data) > 0 {
			signs, left := mix(word), min(64, len(data)/4)
			word++
			for left > 0 {
				run := out[place:min(place+left, sketchDimension)]
				block := data[:4*len(run)]
				for k := range run {
					run[k] += math.Float32frombits(binary.LittleEndian.Uint32(block[4*k:4*k+4]) ^ uint32(signs)<<31)
					signs >>= 1
				}
				data, left = data[len(block):], left-len(run)
				if place += len(run); place == sketchDimension {
					place = 0
				}
			}
		}
	}
	return vector{sketch: out}, nil
}

// sketchers are one per component, so that they can work side by side.
type sketchers map[string]*sketcher

// of sketches every component's gradient, on as many cores as the kernels have.
func (s sketchers) of(b buffers, parameters int) (map[string]vector, error) {
	slots := make(chan struct{}, torch.Threads())
	out, errs := map[string]vector{}, make([]error, 0, len(b))
	var mu sync.Mutex
	var done sync.WaitGroup
	for name, g := range b {
		if s[name] == nil {
			s[name] = new(sketcher)
		}
		own := s[name]
		done.Go(func() {
			slots <- struct{}{}
			v, err := own.of(g, parameters)
			<-slots
			mu.Lock()
			defer mu.Unlock()
			out[name], errs = v, append(errs, err)
		})
	}
	done.Wait()
	return out, errors.Join(errs...)
}

// read copies the gradient of one parameter into the sketcher's memory.
func (s *sketcher) read(g *torch.Gradients, parameter int) ([]byte, error) {
	t, err := g.Tensor(parameter)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	shape, err := t.Shape()
	if err != nil {
		return nil, err
	}
	n := 4
	for _, size := range shape {
		n *= int(size)
	}
	if n > len(s.bytes) {
		s.bytes = make([]byte, n)
	}
	return s.bytes[:n], t.CopyOut(torch.F32, s.bytes[:n])
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood 2014): 64 random signs for a counter.
func mix(counter uint64) uint64 {
	z := (counter + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
