package analysis

import (
	"encoding/binary"
	"math"

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
		for at := 0; at < len(data); at += 4 * 64 {
			signs := mix(word)
			word++
			for block := data[at:min(at+4*64, len(data))]; len(block) >= 4; block = block[4:] {
				bits := binary.LittleEndian.Uint32(block) ^ uint32(signs&1)<<31
				out[place] += math.Float32frombits(bits)
				signs >>= 1
				if place++; place == sketchDimension {
					place = 0
				}
			}
		}
	}
	return vector{sketch: out}, nil
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
