package evaluation

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gyre/internal/table"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/session"
)

// simulated plays tasks that differ in how hard they are; chances have the mean 0.45.
func simulated(random *rand.Rand, tasks, members int, first int64) (out []*episode.Episode) {
	for task := range tasks {
		chance := 0.1 + 0.7*random.Float64()
		for range members {
			value := 0.0
			if random.Float64() < chance {
				value = 1
			}
			out = append(out, played("x", first+int64(task), value)...)
		}
	}
	return out
}

// Whatever method is taken, 95 % intervals cover the true success in 93 to 97 % of studies of tasks with group effects.
func TestClusteredIntervalsCover(t *testing.T) {
	for _, c := range []struct {
		tasks, members int
		how            Method
	}{{100, 8, student}, {100, 1, wilson}, {40, 4, student}, {20, 8, bootstrap}, {10, 8, bootstrap}} {
		studies := 2000
		if c.how == bootstrap {
			studies = 700
		}
		random := rand.New(rand.NewPCG(3, uint64(c.tasks)))
		covered := 0
		for range studies {
			e, how := cluster(simulated(random, c.tasks, c.members, 0), success).interval(true)
			if how != c.how || e.Low > e.Value || e.High < e.Value {
				t.Fatalf("%d tasks: %+v, %s", c.tasks, e, how)
			}
			if e.Low <= 0.45 && 0.45 <= e.High {
				covered++
			}
		}
		if share := float64(covered) / float64(studies); share < 0.93 || share > 0.97 {
			t.Errorf("%d tasks of %d: the interval covers in %.3f of studies", c.tasks, c.members, share)
		}
	}
}

// An interval that is played for until it is narrow covers as often, whatever a round holds.
func TestIntervalsUntilAWidthCover(t *testing.T) {
	for _, c := range []struct {
		tasks, members int
		wanted         float64
	}{{32, 4, 8}, {64, 1, 10}, {10, 8, 10}} {
		random := rand.New(rand.NewPCG(4, uint64(c.tasks)))
		const studies = 700
		covered, looks := 0, 0
		for range studies {
			list := []Result{{Name: "a"}}
			for done, rounds := 0, 1; ; {
				for n := done; n < rounds; n++ {
					list[0].Episodes = append(list[0].Episodes,
						simulated(random, c.tasks, c.members, int64(n*c.tasks))...)
				}
				done = rounds
				looks++
				width := 100 * widest(list)
				if width <= c.wanted {
					break
				}
				rounds = next(done, width, c.wanted)
			}
			e, _ := cluster(list[0].Episodes, success).interval(true)
			if e.Low <= 0.45 && 0.45 <= e.High {
				covered++
			}
		}
		if share := float64(covered) / studies; share < 0.93 || share > 0.97 {
			t.Errorf("rounds of %d tasks: the interval covers in %.3f of studies", c.tasks, share)
		}
		if looks > 6*studies {
			t.Errorf("%d looks in %d studies", looks, studies)
		}
	}
}

// pass@k and pass^k are the shares of all subsets of k episodes of which one, or each, has succeeded.
func TestPasses(t *testing.T) {
	episodes := append(played("x", 1, 1, 1, 0, 1), played("x", 2, 0, 0, 1, 0)...)
	names, shares := passes(episodes)
	if got := strings.Join(names, " "); got != "x/success x/pass@1 x/pass@2 x/pass^2 x/pass@4 x/pass^4" {
		t.Errorf("names %s", got)
	}
	for name, want := range map[string]float64{"x/pass@1": 0.5, "x/pass@2": (1 + 0.5) / 2, "x/pass^2": (0.5 + 0) / 2,
		"x/pass@4": 1, "x/pass^4": 0} {
		if got := shares[name].mean(); math.Abs(got-want) > 1e-12 {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	one, _ := passes(played("x", 1, 1))
	if len(one) != 2 {
		t.Errorf("one episode has %v", one)
	}
}

// Policies that never differ are not known to be equal after a few tasks.
func TestEqualPoliciesAreNotStoppedAtOnce(t *testing.T) {
	list := []Result{{Name: "a"}, {Name: "b"}}
	for i := range list {
		for seed := range int64(50) {
			list[i].Episodes = append(list[i].Episodes, played("x", seed, 1)...)
		}
	}
	if got := widest(list); got != 6./50 {
		t.Errorf("width %v", got)
	}
	if changed := Changed(list); len(changed.Rows) != 0 {
		t.Errorf("changed: %v", changed.Rows)
	}
	list[1].Episodes[7].Metrics["success"] = 0
	if changed := Changed(list); len(changed.Rows) != 1 || changed.Rows[0][0] != "x/7" {
		t.Errorf("changed: %v", changed.Rows)
	}
	if cell := Differences(list).Rows[0][3].(table.Cell); cell.Value != -0.02 {
		t.Errorf("difference %v", cell)
	}
}

// A kept result is found by what it follows from, and only by that; one that is damaged is played again.
func TestKeep(t *testing.T) {
	dir := t.TempDir()
	keep := Keep{Dir: dir}
	c := &config.Config{}
	c.Validation.Envs = sources
	script := filepath.Join(dir, "reward.py")
	c.Rewards = []config.Reward{{Options: map[string]any{"command": []any{"python3", script}}}}
	judges := func(text string) Identity {
		if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		of, err := Identify(c, "build", "weights", "")
		if err != nil {
			t.Fatal(err)
		}
		return of
	}
	rejudged := judges("another reward")
	judges("a reward")
	of, err := Identify(c, "build", "weights", "")
	if err != nil {
		t.Fatal(err)
	}
	e := &episode.Episode{Tag: "x", Seed: 3, IDs: []int32{1, 2}, Mask: []bool{false, true}, Logprob: []float32{0, -0.25},
		Success: true, Stop: "terminated", Metrics: map[string]float64{"success": 1, "num_turns": 1}}
	round := &session.Evaluation{Episodes: []*episode.Episode{e}, Parameters: 9}
	round.Summarize()
	if again := judges("a reward"); again != of {
		t.Errorf("the same reward: %v, want %v", again, of)
	}
	if err := keep.add(of, 2, "a", round); err != nil {
		t.Fatal(err)
	}
	got, at := keep.find(of, 2)
	if got == nil || got.Metrics["x/success"] != 1 || got.Parameters != 9 || got.Episodes[0].Logprob[1] != -0.25 ||
		at.IsZero() {
		t.Fatalf("found %+v", got)
	}
	c.Validation.Temperature = 0.5
	other, err := Identify(c, "build", "weights", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, absent := range map[string]func() *session.Evaluation{
		"another round":    func() *session.Evaluation { e, _ := keep.find(of, 1); return e },
		"another reward":   func() *session.Evaluation { e, _ := keep.find(rejudged, 2); return e },
		"another setting":  func() *session.Evaluation { e, _ := keep.find(other, 2); return e },
		"played anew":      func() *session.Evaluation { e, _ := Keep{dir, true}.find(of, 2); return e },
		"without identity": func() *session.Evaluation { e, _ := keep.find(Identity{}, 2); return e },
	} {
		if absent() != nil {
			t.Errorf("%s: found", name)
		}
	}
	if err := episode.WriteFile(filepath.Join(dir, of.Hash(2)+".jsonl"), []*episode.Episode{e, e}); err != nil {
		t.Fatal(err)
	}
	if got, _ := keep.find(of, 2); got != nil {
		t.Error("a damaged result is found")
	}
}
