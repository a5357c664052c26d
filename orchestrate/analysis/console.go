package analysis

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
)

// Console is the report as a table for people.
func (r Report) Console(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n", title, r.Options.describe())
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "bucket\tepisodes\tshare\tgroups\tspread\t|task|\t|entropy|\t|kl|\tpolicy loss\ttask signal\tsnr\t\n")
	cell := func(values map[string]float64, name string) string {
		if v, ok := values[name]; ok {
			return fmt.Sprintf("%.4g", v)
		}
		return "-"
	}
	for _, x := range r.Results {
		fmt.Fprintf(w, "%s\t%d\t%.1f%%\t%d\t%.3f\t%s\t%s\t%s\t%s\t%s\t\n", x.Name, x.Samples, 100*x.Fraction, len(x.Groups), x.Spread(),
			cell(x.Norms, Task), cell(x.Norms, Entropy), cell(x.Norms, KL), cell(x.Losses, "policy"), x.signal())
	}
	w.Flush()
	if r.Options.Profile == Exact && r.Options.Statistics {
		for _, x := range r.Results {
			if why := x.withoutInterval(r.Options); why != "" {
				fmt.Fprintf(&b, "%s has no interval: %s\n", x.Name, why)
			}
		}
	}
	return b.String()
}

// signal is the task gradient's norm without noise with its interval, and its signal-to-noise ratio.
func (r Result) signal() string {
	s, ok := r.Signals[Task]
	if !ok {
		return "-\t-"
	}
	root := func(square float64) float64 { return math.Sqrt(math.Max(square, 0)) }
	text := fmt.Sprintf("%.3g", root(s.Square))
	if !math.IsNaN(s.Low) {
		text += fmt.Sprintf(" [%.3g, %.3g]", root(s.Low), root(s.High))
	}
	return text + fmt.Sprintf("\t%.2g", s.Ratio())
}

// describe says by which procedure the numbers were made.
func (o Options) describe() string {
	if o.Profile == Paper {
		return fmt.Sprintf("paper profile: mean norm of mini-batches of %d, micro-batches of %d, ranks %d", o.MiniBatch, o.MicroBatch, o.Ranks)
	}
	if !o.Statistics {
		return "exact profile"
	}
	return fmt.Sprintf("exact profile, %g%% intervals", 100*o.Confidence)
}
