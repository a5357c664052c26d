package gradients

import (
	"context"
	"math"
	"slices"

	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// Influence says what leaving units of a batch out of an update does to a quantity, to first order in the weights:
// ∇q·(θ' − θ), where θ are the weights after the update and θ' those after it without the unit. Both are what AdamW
// makes of the gradients, exactly: its moments, the clipping and the normaliser of the loss are those that the update
// without the unit would have. What is approximate is the quantity, which is taken to be linear between θ and θ', and,
// where an update has several optimizer steps, the gradients of all but the first, which are taken at the weights
// before it.
type Influence struct {
	Subject                 // its batch is weighed anew, mini-batch by mini-batch
	Quantity    [][]float32 // ∇q, by parameter
	Units       [][]int     // rows of the batch
	How         train.Optimization
	Rate        float64 // of learning
	Epochs      int
	MiniBatch   int
	Aggregation string // of tokens in the loss
	Width       int    // see train.Batch.Weigh
}

// Measure gives the effect of leaving out each unit, and that of the whole update. It works in one process.
func (in *Influence) Measure(ctx context.Context) (without []float64, update float64, err error) {
	without = make([]float64, len(in.Units))
	moments, err := momentsOf(in.Policy.Optimizer, len(in.Quantity))
	if err != nil {
		return nil, 0, err
	}
	buffer, err := torch.NewGradients(in.Policy.Model)
	if err != nil {
		return nil, 0, err
	}
	defer buffer.Close()
	for range in.Epochs {
		for _, rows := range train.MiniBatches(in.Batch.Len(), in.MiniBatch) {
			whole, err := in.gradient(ctx, rows, rows, buffer)
			if err != nil {
				return nil, 0, err
			}
			step := moments.step(in.How, in.Rate)
			moved := step.toward(in.Quantity, whole, nil, 1)
			update += moved
			for u, unit := range in.Units {
				own := slices.DeleteFunc(slices.Clone(rows), func(row int) bool { return !slices.Contains(unit, row) })
				switch len(own) {
				case 0:
					continue
				case len(rows): // no step is made
					without[u] -= moved
					continue
				}
				part, err := in.gradient(ctx, rows, own, buffer)
				if err != nil {
					return nil, 0, err
				}
				without[u] += step.toward(in.Quantity, whole, part, in.share(rows, own)) - moved
			}
			step.keep(whole)
		}
	}
	return without, update, nil
}

// gradient is that of some rows of a mini-batch under the weights of the whole of it, all loss terms together.
func (in *Influence) gradient(ctx context.Context, mini, rows []int, into *torch.Gradients) ([][]float32, error) {
	b := in.Batch.Take(mini)
	b.Weigh(in.Aggregation, in.Width)
	at := make([]int, len(rows))
	for i, row := range rows {
		at[i] = slices.Index(mini, row)
	}
	if err := into.Zero(); err != nil {
		return nil, err
	}
	columns := train.Terms(into, in.Policy.Model.Config.Shape.Experts > 0)
	if _, err := in.Policy.Backward(ctx, b.Take(at), in.Objective, columns); err != nil {
		return nil, err
	}
	return Values(into)
}

// share is what the weights of a mini-batch's other tokens grow by when rows are left out.
func (in *Influence) share(mini, rows []int) float64 {
	rest := slices.DeleteFunc(slices.Clone(mini), func(row int) bool { return slices.Contains(rows, row) })
	if len(rest) == 0 {
		return 1
	}
	weight := func(b *train.Batch) float64 { // of a token
		b.Weigh(in.Aggregation, in.Width)
		for _, row := range b.Weights {
			for _, w := range row {
				if w != 0 {
					return float64(w)
				}
			}
		}
		return 0
	}
	all := in.Batch.Take(append(slices.Clone(rest), rows...)) // the first token with a weight is of the rest
	if before, after := weight(all), weight(in.Batch.Take(rest)); before != 0 && after != 0 {
		return after / before
	}
	return 1
}

// Values copies a gradient out, by parameter.
func Values(g *torch.Gradients) ([][]float32, error) {
	out := make([][]float32, g.Len())
	for i := range out {
		t, err := g.Tensor(i)
		if err != nil {
			return nil, err
		}
		out[i], err = t.Float32s()
		t.Close()
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// moments are AdamW's, and how many steps have made them.
type moments struct {
	first, second [][]float32
	steps         int
}

func momentsOf(o *torch.Optimizer, parameters int) (m *moments, err error) {
	m = &moments{steps: int(o.Steps())}
	for i := range parameters {
		for _, of := range []struct {
			which torch.Moment
			to    *[][]float32
		}{{torch.FirstMoment, &m.first}, {torch.SecondMoment, &m.second}} {
			held, err := o.Shard(of.which, i)
			if err != nil {
				return nil, err
			}
			values, err := held.Tensor.Float32s()
			held.Tensor.Close()
			if err != nil {
				return nil, err
			}
			*of.to = append(*of.to, values)
		}
	}
	return m, nil
}

// adamStep is one optimizer step that has not been made. Formulas: Loshchilov and Hutter, arXiv 1711.05101. Decay of
// the weights does not depend on gradients, and is left out.
type adamStep struct {
	*moments
	how          train.Optimization
	rate         float64
	bias1, bias2 float64 // corrections
}

func (m *moments) step(how train.Optimization, rate float64) adamStep {
	t := float64(m.steps + 1)
	return adamStep{m, how, rate, 1 - math.Pow(how.Beta1, t), 1 - math.Pow(how.Beta2, t)}
}

// toward is the inner product of a direction with what the step changes of the weights. Its gradient is the whole one
// less a part of it (nil: nothing), times a factor, clipped.
func (s adamStep) toward(direction, whole, less [][]float32, factor float64) (sum float64) {
	entry := func(i, k int) float64 {
		g := float64(whole[i][k])
		if less != nil {
			g -= float64(less[i][k])
		}
		return factor * g
	}
	clip := s.clip(whole, entry)
	for i := range whole {
		for k := range whole[i] {
			g := clip * entry(i, k)
			m := s.how.Beta1*float64(s.first[i][k]) + (1-s.how.Beta1)*g
			v := s.how.Beta2*float64(s.second[i][k]) + (1-s.how.Beta2)*g*g
			sum -= float64(direction[i][k]) * s.rate * m / s.bias1 / (math.Sqrt(v/s.bias2) + s.how.Eps)
		}
	}
	return sum
}

// clip is the factor that brings a gradient to the largest norm that it may have.
func (s adamStep) clip(of [][]float32, entry func(i, k int) float64) float64 {
	square := 0.0
	for i := range of {
		for k := range of[i] {
			g := entry(i, k)
			square += g * g
		}
	}
	if norm := math.Sqrt(square); s.how.ClipGrad > 0 && norm > s.how.ClipGrad {
		return s.how.ClipGrad / norm
	}
	return 1
}

// keep makes the step with the whole gradient: the moments are those after it.
func (s adamStep) keep(whole [][]float32) {
	clip := s.clip(whole, func(i, k int) float64 { return float64(whole[i][k]) })
	for i := range whole {
		for k, g := range whole[i] {
			own := clip * float64(g)
			s.first[i][k] = float32(s.how.Beta1*float64(s.first[i][k]) + (1-s.how.Beta1)*own)
			s.second[i][k] = float32(s.how.Beta2*float64(s.second[i][k]) + (1-s.how.Beta2)*own*own)
		}
	}
	s.steps++
}
