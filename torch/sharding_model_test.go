package torch

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// What the tests of shards train, and how they look at it.

// initialWeight is entry k of parameter i.
func initialWeight(name string, i int, k int64) float32 {
	x := float32(math.Sin(float64(i)*1.7+float64(k)*0.37)) * 0.12
	if strings.Contains(name, "norm") {
		x++
	}
	return x
}

// narrowed rounds to bfloat16.
func narrowed(x float32) float32 {
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

// fillHeld gives a model its initial weights, each rank the part that it holds.
func fillHeld(m *Model, round ...func(float32) float32) error {
	parameters, err := m.Parameters()
	if err != nil {
		return err
	}
	defer CloseParameters(parameters)
	for i, p := range parameters {
		held, err := m.Shard(i)
		if err != nil {
			return err
		}
		shape, err := held.Tensor.Shape()
		if err != nil {
			return err
		}
		values := make([]float32, shape[0])
		for k := range values {
			values[k] = initialWeight(p.Name, i, held.First+int64(k))
			for _, f := range round {
				values[k] = f(values[k])
			}
		}
		if err := held.Tensor.SetFloat32s(values); err != nil {
			return err
		}
		held.Tensor.Close()
	}
	return m.Touch()
}

// trainingData is what one sequence brings to a batch.
type trainingData struct {
	ids                             []int32
	old, advantage, weight, returns []float32
}

func trainingSequences(n int, vocab int64) []trainingData {
	var all []trainingData
	for s := range n {
		d := trainingData{}
		for t := range 5 + s%3*4 {
			d.ids = append(d.ids, int32((s*31+t*t*7+t)%int(vocab)))
			d.old = append(d.old, -float32(math.Log(float64(vocab)))+0.1*float32(math.Sin(float64(s+t))))
			d.advantage = append(d.advantage, float32(math.Cos(float64(3*s+t))))
			d.weight = append(d.weight, 0.02)
			d.returns = append(d.returns, float32(math.Sin(float64(s-t))))
		}
		all = append(all, d)
	}
	return all
}

// pass makes one backward pass over sequences, none of them too.
func pass(m *Model, sequences []trainingData, g *Gradients) error {
	var ids [][]int32
	var old, advantages, weights, returns []float32
	for _, s := range sequences {
		ids = append(ids, s.ids)
		old, advantages = append(old, s.old...), append(advantages, s.advantage...)
		weights, returns = append(weights, s.weight...), append(returns, s.returns...)
	}
	b := Batch{}
	if len(ids) > 0 {
		b = Pack(ids, nil)
	}
	if m.Config.Head == HeadValue {
		_, err := m.ValueBackward(b, ValueInputs{Returns: returns, Weights: weights}, g)
		return err
	}
	_, err := m.PolicyBackward(b, PolicyInputs{OldLogprobs: old, Advantages: advantages, Weights: weights},
		PolicyLoss{Task: NewLoss("ppo", map[string]float64{"clip_high": 0.3, "clip_dual": 0}), Temperature: 1,
			EntropyCoef: 0.01}, Terms(g, g,
			nil))
	return err
}

// backward makes the passes of a rank: its share of the sequences, in two micro-batches, or lane by lane.
func backward(m *Model, group *Group, s ShardConfig, all []trainingData, g *Gradients) error {
	if s.Deterministic {
		first, n := m.Lanes()
		for lane := first; lane < first+n; lane++ {
			if err := g.BeginLane(lane); err != nil {
				return err
			}
			var mine []trainingData
			for i := lane; i < len(all); i += s.Lanes {
				mine = append(mine, all[i])
			}
			if len(mine) == 0 && s.Shard != "" && s.Shard != ShardFull {
				continue
			}
			if err := pass(m, mine, g); err != nil {
				return err
			}
		}
		return nil
	}
	var mine []trainingData
	for i := group.Rank(); i < len(all); i += group.WorldSize() {
		mine = append(mine, all[i])
	}
	half := (len(mine) + 1) / 2
	for _, micro := range [][]trainingData{mine[:half], mine[half:]} {
		if len(micro) == 0 && s.Shard != "" && s.Shard != ShardFull {
			continue
		}
		if err := pass(m, micro, g); err != nil {
			return err
		}
	}
	return nil
}

func relative(got, want float64) float64 { return math.Abs(got-want) / max(math.Abs(want), 1e-300) }

// same says whether two lists agree, relative to the larger list's norm.
func same(got, want []float64, within float64) error {
	var difference, norm float64
	for i := range want {
		difference += (got[i] - want[i]) * (got[i] - want[i])
		norm += want[i] * want[i]
	}
	if !(math.Sqrt(difference) <= within*math.Sqrt(norm)) {
		return fmt.Errorf("they differ by %g of %g", math.Sqrt(difference), math.Sqrt(norm))
	}
	return nil
}

// wholeWeights collects a model's parameters from the ranks that write them to a checkpoint.
func wholeWeights(m *Model, group *Group) ([][]float32, error) {
	parameters, err := m.Parameters()
	if err != nil {
		return nil, err
	}
	defer CloseParameters(parameters)
	var all [][]float32
	for i, p := range parameters {
		shape, err := p.Tensor.Shape()
		if err != nil {
			return nil, err
		}
		held, err := m.Shard(i)
		if err != nil {
			return nil, err
		}
		values, err := held.Tensor.Float32s()
		held.Tensor.Close()
		if err != nil {
			return nil, err
		}
		own := values[held.OwnFirst-held.First:][:held.OwnCount]
		mine := append(binary.LittleEndian.AppendUint64(nil, uint64(held.OwnFirst)), bytesOf(own)...)
		parts := [][]byte{mine}
		if group != nil {
			if parts, err = group.AllGather(context.Background(), mine); err != nil {
				return nil, err
			}
		}
		whole, entries := make([]float32, count(shape)), 0
		for _, part := range parts {
			n := (len(part) - 8) / 4
			if n > 0 {
				copy(bytesOf(whole[binary.LittleEndian.Uint64(part):][:n]), part[8:])
			}
			entries += n
		}
		if entries != len(whole) {
			return nil, fmt.Errorf("%s: the ranks write %d of %d entries", p.Name, entries, len(whole))
		}
		all = append(all, whole)
	}
	return all, nil
}

func doubles(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = float64(v)
	}
	return out
}
