package evaluation

import (
	"math"
	"math/rand/v2"
	"testing"

	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
)

func played(tag string, seed int64, success ...float64) (out []*episode.Episode) {
	for _, s := range success {
		out = append(out, &episode.Episode{Tag: tag, Seed: seed, Score: 2 * s, Metrics: map[string]float64{"success": s}})
	}
	return out
}

// Tasks are compared, not episodes: members of a group count as one, and tasks that only one side played do not count.
func TestDifferences(t *testing.T) {
	a, b := Result{Name: "a"}, Result{Name: "b"}
	a.Episodes = append(append(played("x", 1, 0, 1), played("x", 2, 0, 0)...), played("x", 9, 1)...)
	b.Episodes = append(played("x", 1, 1, 1), played("x", 2, 0, 0)...)
	got := Differences([]Result{a, b})
	row := got.Rows[0]
	cell := row[3].(table.Cell)
	if len(got.Rows) != 2 || row[0] != "x/success" || cell.Value != 0.25 || row[4] != 2 || row[5] != 1 || row[6] != 0 ||
		row[7] != 1.0 {
		t.Errorf("rows %v", got.Rows)
	}
	if got.Rows[1][3].(table.Cell).Value != 0.5 {
		t.Errorf("score %v", got.Rows[1])
	}
	if len(Differences([]Result{a}).Rows) != 0 || len(Differences(nil).Rows) != 0 {
		t.Error("one result differs from nothing")
	}
}

// Groups that play the same row of a data set are one task, whatever their seeds.
func TestRowsAreTasks(t *testing.T) {
	var list []*episode.Episode
	for seed, label := range []string{"d/0", "d/1", "d/2", "d/0", "d/1", "d/2", "d/0"} {
		one := played("x", int64(seed), float64(seed%2))[0]
		one.Label = label
		list = append(list, one)
	}
	if c := cluster(list, success); len(c.sums) != 3 || c.episodes != 7 || c.counts[0] != 3 || c.sums[0] != 1 {
		t.Errorf("%+v", c)
	}
	a, b := Result{Name: "a"}, Result{Name: "b"}
	a.Episodes = append(played("x", 1, 0), played("x", 1, 0)...)
	a.Episodes[0].Label, a.Episodes[1].Label = "d/0", "d/1"
	b.Episodes = append(played("x", 7, 1), played("x", 8, 0)...)
	b.Episodes[0].Label, b.Episodes[1].Label = "d/1", "d/0"
	if row := Differences([]Result{a, b}).Rows[0]; row[4] != 2 || row[5] != 1 || row[8].([]change)[0].Task != "x/d/1" {
		t.Errorf("%v", row)
	}
}

// Differences that are all alike are no proof that there is none: of 7 pairs that are even 95 % lie within 31 points.
func TestDifferencesThatAreAlikeHaveAnInterval(t *testing.T) {
	for name, c := range map[string]struct {
		before, after []float64 // of each task's episodes
		low, high     float64
	}{
		"even":          {[]float64{0}, []float64{0}, -0.30798, 0.30798}, // of 1/9 ± 1.96 √((2/9)/9)
		"won":           {[]float64{0}, []float64{1}, 7./9 - 0.41063, 1},
		"half as often": {[]float64{0, 1}, []float64{0, 0}, -0.5 - 3./7, -0.5 + 3./7},
	} {
		a, b := Result{Name: "a"}, Result{Name: "b"}
		for seed := range int64(7) {
			a.Episodes = append(a.Episodes, played("x", seed, c.before...)...)
			b.Episodes = append(b.Episodes, played("x", seed, c.after...)...)
		}
		rows := Differences([]Result{a, b}).Rows
		cell, score := rows[0][3].(table.Cell), rows[1][3].(table.Cell)
		low, high := cell.Low.(float64), cell.High.(float64)
		if math.Abs(low-c.low) > 1e-4 || math.Abs(high-c.high) > 1e-4 || !math.IsNaN(score.Low.(float64)) {
			t.Errorf("%s: [%.5f, %.5f], want [%.5f, %.5f]; of the score, which has no bounds: %v", name, low, high, c.low,
				c.high, score)
		}
	}
	list := played("x", 1, 0, 1)
	for seed := range int64(9) {
		list = append(list, played("x", 2+seed, 0, 1)...)
	}
	if e, how := cluster(list, success).interval(true); math.Abs(e.Low-0.2) > 1e-12 || math.Abs(e.High-0.8) > 1e-12 ||
		how != three {
		t.Errorf("ten tasks that are solved half of the time: %+v, %s", e, how)
	}
}

func TestSignTest(t *testing.T) {
	for _, c := range []struct {
		better, worse int
		want          float64
	}{{0, 0, 1}, {1, 1, 1}, {5, 0, 2. / 32}, {1, 9, 22. / 1024}} {
		if got := signTest(c.better, c.worse); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%d and %d: %v, want %v", c.better, c.worse, got, c.want)
		}
	}
}

// Where tasks differ in how hard they are and members of a group share their task, the interval covers the true
// difference in 93 to 97 % of studies, as it says, and is at most half as wide as that of unpaired episodes.
func TestPairedIntervalsCover(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const studies, tasks, gain = 800, 100, 0.1
	covered, narrower := 0, 0.0
	for range studies {
		var a, b Result
		for seed := range int64(tasks) {
			easy := random.Float64()*0.9 < 0.45 // half of the tasks are nearly always solved
			chance := 0.02
			if easy {
				chance = 0.88
			}
			one, two := make([]float64, 4), make([]float64, 4)
			for i := range one {
				if random.Float64() < chance {
					one[i] = 1
				}
				if random.Float64() < chance+gain {
					two[i] = 1
				}
			}
			a.Episodes, b.Episodes = append(a.Episodes, played("x", seed, one...)...), append(b.Episodes,
				played("x", seed, two...)...)
		}
		cell := Differences([]Result{a, b}).Rows[0][3].(table.Cell)
		low, high := cell.Low.(float64), cell.High.(float64)
		if low <= gain && gain <= high {
			covered++
		}
		narrower += (high - low) / studies
	}
	if share := float64(covered) / studies; share < 0.93 || share > 0.97 {
		t.Errorf("the interval covers the difference in %.3f of studies", share)
	}
	// Of unpaired groups: the spread of 100 means of four around 0.45 and 0.55 of hard and easy tasks.
	if unpaired := 2 * 1.96 * math.Sqrt(2*0.2/tasks); narrower > unpaired/2 {
		t.Errorf("the interval is %.3f wide, unpaired groups give %.3f", narrower, unpaired)
	}
}
