package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"gyre/internal/statistics"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/forecast"
	"gyre/orchestrate/loop/gradients"
	"gyre/orchestrate/loop/session"
	"gyre/orchestrate/run/metrics"
	"gyre/torch"
)

// why says of a step that was analysed what its analyses mean together, and predicts what its update changes of the
// reward.
type why struct {
	*session.Session
	clock   *session.Clock
	ledger  *forecast.Ledger
	weights *torch.Gradients // those before the update; nil where none is predicted
}

// whyMetrics are what the analyses of a step mean together.
type whyMetrics struct {
	Line     string             `metric:"why/line" doc:"text: the sentence of the console"`
	Shares   map[string]float64 `metric:"why/share/{bucket}" unit:"share" doc:"of the task's gradient that comes from a bucket: ⟨g, G⟩/‖G‖²; below 0 the bucket works against the rest"`
	Signal   *float64           `metric:"why/signal_share" unit:"share" doc:"of ‖G‖² that is signal: signal_sq/‖G‖² of all buckets"`
	Idle     float64            `metric:"why/no_signal_share" unit:"share" doc:"of the step's sampled tokens: those that the filter dropped, and those of episodes whose advantages are all 0"`
	Alike    float64            `metric:"why/equal_reward_share" unit:"share" doc:"of the step's sampled tokens: those of groups whose members all earned the same"`
	Apart    int                `metric:"why/apart" doc:"pairs of buckets, or of reward components, whose gradients work against each other beyond noise"`
	Forecast *forecastMetrics   `metric:"forecast"`
}

// forecastMetrics are what an update is predicted to change.
type forecastMetrics struct {
	Change float64 `metric:"change" unit:"reward" doc:"of the mean return of an episode by this update, to first order; given episodes (--replay) count as drawn by the policy"`
	Low    float64 `metric:"low" unit:"reward" doc:"lower end of its 90 % interval, wider where earlier predictions of the run were off by more"`
	High   float64 `metric:"high" unit:"reward" doc:"upper end"`
	Fit    float64 `metric:"fit" unit:"share" doc:"of the squares of weights times advantages that is proportional to centred returns: below 1 the scale of the prediction is approximate"`
}

// verifiedMetrics compare predictions with a validation.
type verifiedMetrics struct {
	Verified *forecast.Verification `metric:"forecast/score"`
}

// predicts reports whether the updates of a run are predicted.
func predicts(a config.Analysis) bool {
	return a.Enabled && !a.Only && !a.ExitAfter && a.Profile == gradients.Exact
}

// beforeUpdate remembers the weights of a step whose update is to be predicted.
type beforeUpdate struct{ *why }

// Due implements Observer.
func (o *beforeUpdate) Due(step int) bool { return session.AnalysisDue(o.Config.Analysis, step) }

// Look implements Observer.
func (o *beforeUpdate) Look(_ context.Context, s *Step) (err error) {
	if s.analysed != nil && s.analysed.report != nil && s.analysed.pulls {
		o.weights, err = gradients.Remember(o.Actor.Model)
	}
	return err
}

func (o *why) close() {
	if o.weights != nil {
		o.weights.Close()
		o.weights = nil
	}
}

// Due implements Observer: of a step without an analysis only the ledger hears.
func (o *why) Due(int) bool { return o.Config.Analysis.Enabled || o.Config.Components.Enabled }

// Look implements Observer.
func (o *why) Look(_ context.Context, s *Step) error {
	var prediction *forecast.Prediction
	var fit float64
	if o.weights != nil {
		var err error
		if prediction, fit, err = o.predict(s); err != nil {
			return err
		}
	}
	if o.Config.Analysis.Enabled && !o.Config.Analysis.Only {
		o.ledger.Updated(prediction)
	}
	if (s.analysed == nil || s.analysed.report == nil) && s.components == nil {
		return nil
	}
	m, said := whyMetrics{}, []string{}
	if s.analysed != nil && s.analysed.report != nil {
		said = append(said, m.origin(s.analysed.report))
	}
	said = append(said, m.work(s), m.apart(s))
	if prediction != nil {
		low, high := prediction.Interval(o.ledger.Widening())
		m.Forecast = &forecastMetrics{prediction.Change, low, high, fit}
		said = append(said, fmt.Sprintf("the update should move the return by %+.3g [%+.3g, %+.3g]", prediction.Change,
			low, high))
	}
	m.Line = strings.Join(slices.DeleteFunc(said, func(part string) bool { return part == "" }), "; ")
	s.Line.Add(m)
	o.Log.Infof("step %d why: %s", s.Number, m.Line)
	return nil
}

// predict predicts what the update that was made changes.
func (o *why) predict(s *Step) (p *forecast.Prediction, fit float64, err error) {
	defer o.clock.Phase("gradient_analysis")(&err)
	defer o.close()
	moved, err := gradients.Moved(o.weights, o.Actor.Model)
	if err != nil {
		return nil, 0, err
	}
	x := s.analysed
	returns := make([]float64, len(x.chosen.Episodes))
	for i, e := range x.chosen.Episodes {
		returns[i] = e.Return()
	}
	groups := x.report.All().Bucket.Groups
	p, fit = x.report.Predict(x.batch, returns, len(x.chosen.Std)-len(groups), !o.Config.Separate(), moved)
	return p, fit, nil
}

// validated tells the ledger what a validation found, and logs how right the predictions before it were.
func (o *why) validated(step int, episodes []*episode.Episode, line metrics.Line) {
	if !o.Config.Analysis.Enabled || o.Config.Analysis.Only {
		return
	}
	tasks := map[string][]float64{}
	for _, e := range episodes {
		task := fmt.Sprintf("%s/%d", e.Tag, e.Seed)
		tasks[task] = append(tasks[task], e.Return())
	}
	means := map[string]float64{}
	for task, returns := range tasks {
		means[task] = statistics.Mean(returns)
	}
	score := o.ledger.Validated(means)
	line.Add(verifiedMetrics{score})
	if score != nil {
		o.Log.Infof("step %d forecast: the return was to move by %+.3g [%+.3g, %+.3g] since the last validation; it "+
			"moved by %+.3g; %d of %d right", step, score.Predicted, score.Low, score.High, score.Came, o.ledger.Right,
			o.ledger.Verified)
	}
}

// origin says which buckets the gradient comes from.
func (m *whyMetrics) origin(r *gradients.Report) string {
	shares := r.Shares()
	if shares == nil {
		return ""
	}
	m.Shares = map[string]float64{}
	most := 0
	for i, share := range shares {
		m.Shares[r.Results[i].Name] = share
		if share > shares[most] {
			most = i
		}
	}
	top := r.Results[most]
	said := fmt.Sprintf("%.0f %% of the gradient from %s (reward std %.2g to %.2g)", 100*shares[most], top.Name,
		top.Low, top.High)
	if all := r.All().Terms[torch.Task]; all.Signal != nil {
		m.Signal = new(all.Signal.Square / (all.Norm * all.Norm))
		if all.Signal.Low != nil && *all.Signal.Low <= 0 {
			return said + ", not told from noise"
		}
		said += fmt.Sprintf(", %.0f %% of its square signal", 100*(*m.Signal))
	}
	return said
}

// work says what share of the sampled tokens bought nothing.
func (m *whyMetrics) work(s *Step) string {
	all, used, alike := 0, 0, 0
	for g, group := range gradients.Groups(session.GroupIDs(s.Episodes), nil) {
		for _, row := range group.Rows {
			n := s.Episodes[row].PolicyTokens()
			all += n
			if g < len(s.Chosen.Std) && s.Chosen.Std[g] == 0 { // others are surplus (filter.max_batches)
				alike += n
			}
		}
	}
	nonzero := func(v float32) bool { return math.Abs(float64(v)) > 1e-6 }
	for i, e := range s.Chosen.Episodes {
		if slices.ContainsFunc(s.Chosen.Batch.Advantages[i], nonzero) {
			used += e.PolicyTokens()
		}
	}
	m.Idle, m.Alike = 1-float64(used)/float64(max(all, 1)), float64(alike)/float64(max(all, 1))
	return fmt.Sprintf("%.0f %% of the tokens bought no signal (%.0f %% in groups that all earned the same)",
		100*m.Idle, 100*m.Alike)
}

// apart names the buckets and components that pull apart.
func (m *whyMetrics) apart(s *Step) string {
	var pairs [][2]string
	if s.analysed != nil && s.analysed.report != nil {
		pairs = s.analysed.report.Apart
	}
	if s.components != nil {
		pairs = append(slices.Clone(pairs), s.components.Apart()...)
	}
	if m.Apart = len(pairs); len(pairs) == 0 {
		return "nothing pulls apart beyond noise"
	}
	var names []string
	for _, pair := range pairs {
		names = append(names, pair[0]+" and "+pair[1])
	}
	return strings.Join(names, ", ") + " pull apart"
}
