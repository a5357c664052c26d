package gradients

import (
	"math"

	"gyre/internal/statistics"
	"gyre/torch"
)

// Proxy says how well the reward's standard deviation in a group tells what the group's gradient g of the task is worth.
// Filters by reward variance (DAPO, RAGEN-2) take one for the other. The worth is measured against the gradient R of all
// other groups, which is independent of g: ⟨g, R⟩ estimates what the group adds to the signal without bias, and the
// cosine of g and R is what remains of it beside the group's own noise. Ranks are compared, with an interval.
type Proxy struct {
	Pull     *float64 `metric:"std_rank/pull" unit:"−1 to 1" doc:"Spearman's correlation, over groups, of the reward's standard deviation and ⟨g, R⟩, with the gradient R of all other groups: 1 means that groups with more variance add more signal"`
	PullLow  *float64 `metric:"std_rank/pull_low" unit:"−1 to 1" doc:"lower end of its interval (Bonett and Wright 2000); groups count as independent"`
	PullHigh *float64 `metric:"std_rank/pull_high" unit:"−1 to 1" doc:"upper end"`
	// Cosine leaves out the groups without a gradient, which have none.
	Cosine     *float64 `metric:"std_rank/cosine" unit:"−1 to 1" doc:"the same with the cosine of g and R, over groups that have a gradient: 1 means that groups with more variance have less noise for their size"`
	CosineLow  *float64 `metric:"std_rank/cosine_low" unit:"−1 to 1" doc:"lower end of its interval"`
	CosineHigh *float64 `metric:"std_rank/cosine_high" unit:"−1 to 1" doc:"upper end"`
}

// proxy compares the groups of a result; it is nil where the task was not measured, or no group has another beside it.
func (r *Result) proxy(confidence float64) *Proxy {
	t := r.Terms[torch.Task]
	if t == nil || len(r.Bucket.Groups) < 2 {
		return nil
	}
	var all, some, pulls, cosines []float64
	for i, g := range r.Bucket.Groups {
		square := t.groups[i].square
		pull := t.products[i] - square
		all, pulls = append(all, g.Std), append(pulls, pull)
		if cosine, ok := statistics.Cosine(pull, square, t.vector.square-2*t.products[i]+square); ok {
			some, cosines = append(some, g.Std), append(cosines, cosine)
		}
	}
	pull := statistics.Spearman(all, pulls, confidence)
	cosine := statistics.Spearman(some, cosines, confidence)
	return &Proxy{defined(pull.Value), defined(pull.Low), defined(pull.High),
		defined(cosine.Value), defined(cosine.Low), defined(cosine.High)}
}

// defined is a number, or nil for NaN.
func defined(v float64) *float64 { return optional(v, !math.IsNaN(v)) }
