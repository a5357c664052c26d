package laboratory

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"gyre/internal/statistics"
)

// Result is what an estimator's gradient is like.
type Result struct {
	Exact   bool // all batches were listed
	Batches int
	Mean    []float64 // of the gradient
	Truth   []float64
	Scale   float64 // the factor c of the true gradient in the mean
	// Bias is what else the mean holds: |mean − c·truth| / |c·truth|. Measured on samples, it is that along a direction
	// which other samples gave, with its 99.9 % interval (a report has
	// hundreds of them); it may then lie below 0.
	Bias   statistics.Estimate
	Cosine float64 // of mean and truth
	// Variance is the sum over all logits, per episode and relative to (c·truth)².
	Variance float64
}

// Measure finds the mean and the variance of an estimator's gradient in a game: over all batches where there are no
// more than samples, over so many random ones elsewhere.
func Measure(g Game, s Setup, samples int, seed uint64) Result {
	subject := newSubject(g, s)
	if out, few := subject.enumerate(samples); few {
		return out
	}
	return subject.sample(samples, rand.New(rand.NewPCG(seed, 1)))
}

// drawn is a multiset of things that are drawn independently of each other, with its probability.
type drawn struct {
	members []int
	p       float64
}

// multisets lists those of a size with their probabilities, unless they are more than limit.
func multisets(p []float64, size, limit int) (all []drawn, few bool) {
	var walk func(from int, so drawn, run int)
	walk = func(from int, so drawn, run int) {
		if len(so.members) == size {
			all = append(all, drawn{slices.Clone(so.members), so.p})
			return
		}
		for i := from; i < len(p) && len(all) <= limit; i++ {
			repeats := 1
			if i == from && len(so.members) > 0 {
				repeats = run + 1
			}
			// n!/Π(c!), factor by factor
			factor := p[i] * float64(len(so.members)+1) / float64(repeats)
			walk(i, drawn{append(so.members, i), so.p * factor}, repeats)
		}
	}
	walk(0, drawn{p: 1}, 0)
	return all, len(all) <= limit
}

// starting are the paths from a state.
func (s *subject) starting(state int) (paths []int, p []float64) {
	for i, path := range s.paths {
		if path.start() == state {
			paths, p = append(paths, i), append(p, s.probabilities[i])
		}
	}
	return paths, p
}

// size of a group that starts in a state.
func (s *subject) size(state int) int {
	if s.Sizes == nil {
		return s.Size
	}
	return s.Sizes[state]
}

// groups lists what a group may be, as paths, unless that is more than limit.
func (s *subject) groups(limit int) (all []drawn, few bool) {
	for state, p := range s.game.Start {
		paths, probabilities := s.starting(state)
		if p == 0 {
			continue
		}
		own, few := multisets(probabilities, s.size(state), limit)
		if !few {
			return nil, false
		}
		for _, group := range own {
			for k, i := range group.members {
				group.members[k] = paths[i]
			}
			all = append(all, drawn{group.members, p * group.p})
		}
	}
	return all, len(all) <= limit
}

// enumerate goes through all batches, unless they are more than limit.
func (s *subject) enumerate(limit int) (Result, bool) {
	outcomes, few := s.groups(limit)
	if !few {
		return Result{}, false
	}
	p := make([]float64, len(outcomes))
	for i, o := range outcomes {
		p[i] = o.p
	}
	batches, few := multisets(p, s.Groups, limit)
	if !few {
		return Result{}, false
	}
	out := Result{Exact: true, Batches: len(batches), Mean: make([]float64, len(s.truth))}
	square := 0.0
	for _, batch := range batches {
		g := s.gradient(pick(outcomes, batch.members))
		for i, v := range g {
			out.Mean[i] += batch.p * v
		}
		square += batch.p * dot(g, g)
	}
	out.compare(s, square-dot(out.Mean, out.Mean))
	rest := out.rest(out.Mean)
	bias := math.Sqrt(dot(rest, rest)) / (math.Abs(out.Scale) * math.Sqrt(dot(s.truth, s.truth)))
	out.Bias = statistics.Estimate{Value: bias, Low: bias, High: bias}
	return out, true
}

func pick(outcomes []drawn, members []int) [][]int {
	groups := make([][]int, len(members))
	for k, i := range members {
		groups[k] = outcomes[i].members
	}
	return groups
}

// compare fills what follows from the mean.
func (r *Result) compare(s *subject, variance float64) {
	truth := dot(s.truth, s.truth)
	r.Truth, r.Scale = s.truth, dot(r.Mean, s.truth)/truth
	r.Cosine, _ = statistics.Cosine(dot(r.Mean, s.truth), dot(r.Mean, r.Mean), truth)
	r.Variance = max(variance, 0) * float64(s.Groups*s.Size) / (r.Scale * r.Scale * truth)
}

// rest is a gradient without what it has of the true one.
func (r *Result) rest(gradient []float64) []float64 {
	factor := dot(gradient, r.Truth) / dot(r.Truth, r.Truth)
	out := slices.Clone(gradient)
	for i := range out {
		out[i] -= factor * r.Truth[i]
	}
	return out
}

// portions that samples are cut into: one half says where the bias points, the other half how long it is.
const portions = 40

func (s *subject) sample(samples int, random *rand.Rand) Result {
	per := max(samples/portions, 1)
	means, square := make([][]float64, portions), 0.0
	out := Result{Batches: per * portions, Mean: make([]float64, len(s.truth))}
	start := distuv.NewCategorical(s.game.Start, random)
	from, ways := make([][]int, len(s.game.Start)), make([]distuv.Categorical, len(s.game.Start))
	for state, chance := range s.game.Start {
		if chance > 0 {
			paths, p := s.starting(state)
			from[state], ways[state] = paths, distuv.NewCategorical(p, random)
		}
	}
	for k := range means {
		means[k] = make([]float64, len(s.truth))
		for range per {
			groups := make([][]int, s.Groups)
			for g := range groups {
				state := int(start.Rand())
				for range s.size(state) {
					groups[g] = append(groups[g], from[state][int(ways[state].Rand())])
				}
			}
			g := s.gradient(groups)
			for i, v := range g {
				means[k][i] += v / float64(per)
				out.Mean[i] += v / float64(out.Batches)
			}
			square += dot(g, g) / float64(out.Batches)
		}
	}
	out.compare(s, square-dot(out.Mean, out.Mean))
	direction := make([]float64, len(s.truth))
	for _, mean := range means[:portions/2] {
		for i, v := range out.rest(mean) {
			direction[i] += v
		}
	}
	unit := math.Sqrt(dot(direction, direction)) * math.Abs(out.Scale) * math.Sqrt(dot(s.truth, s.truth))
	var along []float64
	for _, mean := range means[portions/2:] {
		if unit < 1e-12 { // all that there is points along the true gradient
			unit = math.Inf(1)
		}
		along = append(along, dot(mean, direction)/unit)
	}
	if out.Bias = statistics.MeanInterval(along, 0.999); math.IsInf(unit, 1) {
		out.Bias = statistics.Estimate{} // that is known
	}
	return out
}
