package statistics

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// Scores of two methods on three tasks; the expected numbers are scipy's (stats.trim_mean with 0.25,
// stats.mannwhitneyu over the number of pairs), and the intervals the percentiles of 40,000 stratified resamples drawn
// with numpy.
var (
	scoresX = [][]float64{{0.64, 0.02, 0.61, 0.94, 0.86}, {0.27, 0.81, 0.73, 0.82, 0.03}, {0.04, 0.91, 0.54, 0.0, 0.73}}
	scoresY = [][]float64{{0.2, 0.3, 0.1, 0.6}, {0.9, 0.4, 0.7, 0.4}, {0.5, 0.0, 0.6, 1.0}}
)

func TestPublishedStatistics(t *testing.T) {
	near(t, "the interquartile mean of x", InterquartileMean(scoresX), 0.5766666666666667, 1e-12)
	near(t, "the interquartile mean of y", InterquartileMean(scoresY), 0.46666666666666673, 1e-12)
	near(t, "the probability of improvement", ProbabilityOfImprovement(scoresX, scoresY), 0.575, 1e-12)
	near(t, "of the other over the one", ProbabilityOfImprovement(scoresY, scoresX), 0.425, 1e-12)
	iqm := Bootstrap(0.95, InterquartileMean, scoresX)
	near(t, "its interval's lower end", iqm.Low, 0.3033, 0.012)
	near(t, "its interval's upper end", iqm.High, 0.7733, 0.012)
	p := Bootstrap(0.95, ProbabilityOfImprovement, scoresX, scoresY)
	near(t, "the probability's lower end", p.Low, 0.35, 0.012)
	near(t, "the probability's upper end", p.High, 0.8, 0.012)
	if e := Bootstrap(0.95, InterquartileMean, [][]float64{{0.5}}); e.Value != 0.5 ||
		!math.IsNaN(e.Low) {
		t.Errorf("one run has an interval: %+v", e)
	}
	if !math.IsNaN(InterquartileMean([][]float64{})) || !math.IsNaN(ProbabilityOfImprovement(nil, scoresY)) {
		t.Error("no scores have a value")
	}
}

// The same statistics as rliable's (scripts/fixtures_rliable.py), on random scores of one to four tasks, some of them
// equal. Values agree to rounding, intervals but for the two streams of random numbers.
func TestStatisticsAreThoseOfRliable(t *testing.T) {
	data, err := os.ReadFile("testdata/rliable.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		X, Y             [][]float64
		IQM, Improvement [3]float64 // value, low, high
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) == 0 {
		t.Fatal(err, len(cases))
	}
	for i, c := range cases {
		iqm := Bootstrap(0.95, InterquartileMean, c.X)
		improvement := Bootstrap(0.95, ProbabilityOfImprovement, c.X, c.Y)
		for name, pair := range map[string][2][3]float64{"interquartile mean": {{iqm.Value, iqm.Low, iqm.High}, c.IQM},
			"probability of improvement": {{improvement.Value, improvement.Low, improvement.High}, c.Improvement}} {
			got, want := pair[0], pair[1]
			what := fmt.Sprintf("case %d: the %s", i, name)
			near(t, what, got[0], want[0], 1e-12)
			// ends of 5,000 resamples move by about a hundredth of the width, and these values have steps
			slack := 0.04 * (want[2] - want[1])
			near(t, what+"'s lower end", got[1], want[1], slack)
			near(t, what+"'s upper end", got[2], want[2], slack)
		}
	}
}

// A simulated study: seeds share what they draw, conditions differ by a known amount. The interval covers it as often
// as it says, and is much narrower than that of unpaired runs.
func TestPairedIntervalCoversTheTruth(t *testing.T) {
	const truth, studies, seeds = 0.05, 4000, 5
	random := rand.New(rand.NewPCG(3, 4))
	covered, width := 0, 0.0
	for range studies {
		var differences []float64
		for range seeds {
			shared := 0.2 * random.NormFloat64()
			x := 0.5 + truth + shared + 0.03*random.NormFloat64()
			differences = append(differences, x-(0.5+shared+0.03*random.NormFloat64()))
		}
		d := MeanInterval(differences, 0.95)
		if d.Low <= truth && truth <= d.High {
			covered++
		}
		width += (d.High - d.Low) / studies
	}
	// Three standard errors of the share are 0.0103.
	near(t, "the coverage", float64(covered)/studies, 0.95, 0.0104)
	if width > 0.12 {
		t.Errorf("the mean width is %v: what the pairs share did not cancel", width)
	}
}
