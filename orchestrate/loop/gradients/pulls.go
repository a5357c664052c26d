package gradients

import (
	"math"

	"gyre/internal/masks"
	"gyre/internal/statistics"
	"gyre/orchestrate/loop/forecast"
	"gyre/orchestrate/loop/train"
	"gyre/torch"
)

// Pull is what is kept of a group's gradient of the task.
type Pull struct {
	Square, Product float64   // ‖g‖², and ⟨g, G⟩ with that of all groups
	Sketch          []float32 // see Sketched
}

// Remember keeps the weights of now in a buffer, for Moved. Over ranks both are collective.
func Remember(model *torch.Model) (*torch.Gradients, error) {
	buffer, err := torch.NewGradients(model)
	if err != nil {
		return nil, err
	}
	if err := buffer.AddWeights(model, -1); err != nil {
		buffer.Close()
		return nil, err
	}
	return buffer, nil
}

// Moved is a sketch of how far the weights went from those that were remembered, whose inner products with the groups'
// sketches mean something. It uses the buffer up, but does not close it.
func Moved(remembered *torch.Gradients, model *torch.Model) ([]float32, error) {
	if err := remembered.AddWeights(model, 1); err != nil {
		return nil, err
	}
	return remembered.Sketch(bucketSketch)
}

// pulls keeps what is asked for of the groups, and finds the buckets that work against each other. Their inner product
// is a sum over independent groups of either side; a pair counts where Student's interval of it, with the confidence
// of the report shared out among all pairs, lies below 0.
func (r *Report) pulls() error {
	last := len(r.Results) - 1
	if r.Results[last].Terms[torch.Task] == nil {
		return nil
	}
	pairs := float64(last * (last - 1) / 2)
	for i, x := range r.Results[:last] {
		for _, y := range r.Results[i+1 : last] {
			a, b := x.Terms[torch.Task], y.Terms[torch.Task]
			if min(len(a.groups), len(b.groups)) < 2 {
				continue
			}
			product, variance := 0.0, 0.0
			for side, groups := range [][]vector{a.groups, b.groups} {
				other := []*Term{b, a}[side].vector
				own, err := products(groups, other)
				if err != nil {
					return err
				}
				deviation := statistics.Deviation(own)
				product, variance = statistics.Sum(own), variance+deviation*deviation*float64(len(own))
			}
			freedom := float64(min(len(a.groups), len(b.groups)) - 1)
			if product+statistics.Student(1-(1-r.Options.Confidence)/2/pairs, freedom)*math.Sqrt(variance) < 0 {
				r.Apart = append(r.Apart, [2]string{x.Name, y.Name})
			}
		}
	}
	if !r.Options.Pulls {
		return nil
	}
	all := r.All().Terms[torch.Task]
	for i, g := range all.groups {
		if g.full != nil {
			var err error
			if g.sketch, err = g.full.Sketch(bucketSketch); err != nil {
				return err
			}
		}
		r.Task = append(r.Task, Pull{g.square, all.products[i], g.sketch})
	}
	return nil
}

func products(groups []vector, with vector) (out []float64, err error) {
	for _, g := range groups {
		product, err := g.dot(with)
		if err != nil {
			return nil, err
		}
		out = append(out, product)
	}
	return out, nil
}

// Shares are what buckets make up of the task's gradient: ⟨g, G⟩/‖G‖², which add up to 1; nil where there is none.
func (r *Report) Shares() []float64 {
	all := r.All().Terms[torch.Task]
	if all == nil || all.Norm == 0 {
		return nil
	}
	var out []float64
	for _, x := range r.Results[:len(r.Results)-1] {
		share := 0.0
		if own := x.Terms[torch.Task]; own.CosineAll != nil {
			share = *own.CosineAll * own.Norm / all.Norm
		}
		out = append(out, share)
	}
	return out
}

// Predict says what an update changes of the mean reward of an episode, to first order. moved is the sketch of the
// update. The batch is the one that was measured, weighed, rewards are those of its rows, more counts the groups that
// were played and left out, and own says that the update was made from it. It is nil where nothing can be said.
//
// The gradient of the expected reward is Σ (r − r̄')·∇log π over the tokens of an episode, with the mean r̄' of the
// rest of its group. A group's gradient of the task has w·A in the place of r − r̄', the token's weight and advantage.
// If these are proportional within a group (estimators that compare its episodes, means over tokens), one is the other
// times a constant of the group. fit is the share of the squares of w·A that proportions explain: 1 where they hold;
// below, one proportion is taken for all groups, as after division by the deviation of a whole batch.
func (r *Report) Predict(b *train.Batch, rewards []float64, more int, own bool, moved []float32) (
	p *forecast.Prediction, fit float64) {
	groups := r.All().Bucket.Groups
	if len(r.Task) != len(groups) || len(groups) == 0 {
		return nil, 0
	}
	slopes := make([]proportion, len(groups))
	var pooled proportion
	explained, squares := 0.0, 0.0
	for i, g := range groups {
		slopes[i] = proportionOf(b, rewards, g.Rows)
		pooled.add(slopes[i])
		squares += slopes[i].squares
		explained += slopes[i].explained()
	}
	if squares == 0 {
		return nil, 0
	}
	proportional := explained > 0.999*squares
	if fit = explained / squares; !proportional {
		fit = pooled.explained() / squares
	}
	out, scaled := make([]forecast.Group, len(groups)), make([]float32, len(moved))
	for i, g := range groups {
		slope := slopes[i]
		if !proportional {
			slope.products, slope.of = pooled.products, pooled.of
		}
		pull := r.Task[i]
		out[i] = forecast.Group{Square: pull.Square, Product: pull.Product}
		if slope.products <= 0 || len(g.Rows) < 2 || slopes[i].of == 0 {
			continue
		}
		factor := -slope.of / slope.products / float64(len(g.Rows)-1)
		out[i].Effect = factor * dotSketches(pull.Sketch, moved)
		for k, v := range pull.Sketch {
			scaled[k] += float32(factor / float64(len(groups)+more) * float64(v))
		}
	}
	rounding := math.Sqrt(dotSketches(scaled, scaled) * dotSketches(moved, moved) / bucketSketch)
	return forecast.Predict(out, more, own, rounding), fit
}

// proportion is of the tokens of some episodes: sums of squares of w·A, of the centred rewards, and of their products.
type proportion struct{ squares, of, products float64 }

func proportionOf(b *train.Batch, rewards []float64, rows []int) (p proportion) {
	mean := 0.0
	for _, row := range rows {
		mean += rewards[row] / float64(len(rows))
	}
	for _, row := range rows {
		for t := range masks.Tokens(b.Sequences[row].Mask) {
			x, y := rewards[row]-mean, float64(b.Weights[row][t])*float64(b.Advantages[row][t])
			if b.Importance != nil && b.Importance[row] != nil {
				y *= float64(b.Importance[row][t])
			}
			p.add(proportion{y * y, x * x, x * y})
		}
	}
	return p
}

func (p *proportion) add(other proportion) {
	p.squares, p.of, p.products = p.squares+other.squares, p.of+other.of, p.products+other.products
}

// explained is the part of the squares that the proportion explains.
func (p proportion) explained() float64 {
	if p.of == 0 {
		return 0
	}
	return p.products * p.products / p.of
}
