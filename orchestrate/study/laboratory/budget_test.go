package laboratory

import (
	"math"
	"slices"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
)

// sized measures an estimator where the easy question has groups of two and the hard one groups of more.
func sized(t *testing.T, name, aggregation string, sizes []int) Result {
	t.Helper()
	s := plain(name, Options{Size: 3})
	s.Sizes, s.Aggregation, s.Groups = sizes, aggregation, 2
	m := Measure(game(t, "tasks"), s, 200000, 1)
	if !m.Exact {
		t.Fatalf("%s, groups of %v: not listed", name, sizes)
	}
	return m
}

// Where the sizes of groups follow from the past alone and each group counts as its planned size does, the expected
// gradient is the true one, whatever the sizes: for all estimators that a configuration lets go with a budget, by
// listing all batches. Of others it depends on the sizes.
func TestBudgetIsUnbiased(t *testing.T) {
	for _, e := range advantage.Estimators {
		if e.Name == "james_stein" || e.Name == "gae" || e.Name == "bi_level_gae" {
			continue // of two groups it is rloo; these have a critic
		}
		unsized := config.Algorithm{Advantage: e.Name}.Unsized()
		for _, sizes := range [][]int{{2, 4}, {4, 2}, {2, 5}} {
			equal, m := sized(t, e.Name, "seq-mean-token-sum", []int{3, 3}), sized(t, e.Name, "seq-mean-token-sum", sizes)
			if unsized {
				near(t, e.Name, m.Mean, m.Truth)
			}
			same := slices.EqualFunc(m.Mean, equal.Mean, func(a, b float64) bool { return math.Abs(a-b) < exactly })
			if same != (unsized || e.Name == "reinforce") {
				t.Errorf("%s, groups of %v: %v, in groups of three %v", e.Name, sizes, m.Mean, equal.Mean)
			}
		}
	}
}

// Turns and lengths change nothing: in games of several turns and tokens the mean is that of equal sizes, for every
// aggregation that a configuration lets go with a budget. Dividing by the tokens of other episodes is not among them.
// Nor is dividing by an episode's own, but for rloo: scores over lengths have a mean, which the baseline's mean
// multiplies, and that of the others depends on the size.
func TestBudgetOverTurnsAndTokens(t *testing.T) {
	for _, g := range []Game{StopChain(3), game(t, "reply")} {
		for _, name := range []string{"rloo", "turn_rloo", "optimal_turn_baseline"} {
			for _, how := range []string{"seq-mean-token-sum", "seq-mean-token-mean", "token-sum", "token-mean"} {
				s := plain(name, Options{Size: 2})
				s.Aggregation = how
				equal := Measure(g, s, 200000, 1)
				s.Sizes = slices.Repeat([]int{4}, len(g.Start))
				m := Measure(g, s, 200000, 1)
				if !m.Exact {
					t.Fatalf("%s: not listed", g.Name)
				}
				same := slices.EqualFunc(m.Mean, equal.Mean, func(a, b float64) bool { return math.Abs(a-b) < exactly })
				want := how != "token-mean" && (how != "seq-mean-token-mean" || name == "rloo" ||
					name == "turn_rloo" && g.Name == "reply") // of one turn, where both are one
				if same != want {
					t.Errorf("%s, %s, %s: %v, in groups of two %v", g.Name, name, how, m.Mean, equal.Mean)
				}
			}
		}
	}
}

// With three groups james_stein draws baselines towards other groups.
func TestBudgetWithShrinkage(t *testing.T) {
	s := plain("james_stein", Options{Size: 2})
	s.Sizes, s.Groups = []int{2, 3}, 3
	m := Measure(game(t, "tasks"), s, 200000, 1)
	if !m.Exact {
		t.Fatal("not listed")
	}
	near(t, "james_stein", m.Mean, m.Truth)
}

// Without what makes up for the sizes, a task counts by its episodes.
func TestSizesAloneAreBiased(t *testing.T) {
	g := game(t, "tasks")
	s := plain("rloo", Options{Size: 3})
	s.Sizes, s.Groups = []int{2, 4}, 2
	subject := newSubject(g, s)
	outcomes, _ := subject.groups(200000)
	mean, total := make([]float64, len(subject.truth)), 0.0
	for _, o := range outcomes { // one group; its sum over episodes, as a batch of fixed length takes it
		for i, v := range subject.gradient([][]int{o.members}) {
			mean[i] += o.p * v * float64(len(o.members)) / 3
		}
		total += o.p
	}
	if math.Abs(total-1) > exactly {
		t.Fatalf("probabilities add up to %v", total)
	}
	near(t, "the easy question", mean[:2], combined([]float64{2. / 3}, subject.truth[:2]))
	near(t, "the hard question", mean[2:], combined([]float64{4. / 3}, subject.truth[2:]))
}

// A second round that looks at a group's own first one is biased where the rounds are put together: two episodes, and
// two more where both of them failed. That is why a step does not play in rounds.
func TestRoundsThatLookAtThemselvesAreBiased(t *testing.T) {
	g := game(t, "tasks")
	s := plain("rloo", Options{Size: 2})
	s.Groups = 1
	subject := newSubject(g, s)
	mean := make([]float64, len(subject.truth))
	for state, p := range g.Start {
		paths, chances := subject.starting(state)
		pairs, _ := multisets(chances, 2, 1000)
		for _, first := range pairs {
			a, b := paths[first.members[0]], paths[first.members[1]]
			add := func(p float64, members ...int) {
				for i, v := range subject.gradient([][]int{members}) {
					mean[i] += p * v
				}
			}
			if subject.paths[a].reward()+subject.paths[b].reward() > 0 {
				add(p*first.p, a, b)
				continue
			}
			for _, second := range pairs {
				add(p*first.p*second.p, a, b, paths[second.members[0]], paths[second.members[1]])
			}
		}
	}
	away := combined([]float64{1, -1}, mean, subject.truth)
	if bias := math.Sqrt(dot(away, away) / dot(subject.truth, subject.truth)); bias < 0.01 {
		t.Errorf("bias %v: expected some", bias)
	}
}
