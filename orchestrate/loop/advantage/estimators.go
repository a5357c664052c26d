package advantage

import "slices"

// Estimator is a way of turning rewards into advantages. Adding one is a file with its formula and a line in
// Estimators; a test says what configurations then lack.
type Estimator struct {
	Name string
	// Linear gives advantages that are linear in rewards and values, before they are divided or whitened, and what a
	// critic should predict (nil: the advantages). Other tokens than the sampled ones do not matter.
	Linear func(episodes []Trajectory, o Options) (advantages, returns [][]float64)
	// Divisor, if not nil, is what the advantages of an episode are divided by.
	Divisor func(episodes []Trajectory, o Options) func(i int) float64
	Whitens bool // over all sampled tokens, after the division
	// WhitenedReturns: the returns are the whitened advantages.
	WhitenedReturns bool

	Critic   bool // reads the values of a critic
	Groups   bool // compares the members of a group
	Episodes bool // gives all sampled tokens of an episode the same advantage, that of its return
}

// Estimators are those that algorithm.advantage names.
var Estimators = []Estimator{gae, biLevelGAE, grpo, rloo, reinforcePP, reinforcePPBaseline, brpo}

// Find gives an estimator by its name, nil where there is none.
func Find(name string) *Estimator {
	i := slices.IndexFunc(Estimators, func(e Estimator) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &Estimators[i]
}

// Names are those of Estimators.
func Names() []string {
	var names []string
	for _, e := range Estimators {
		names = append(names, e.Name)
	}
	return names
}
