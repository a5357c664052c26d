package episode

// Owner says who wrote a span of an episode's tokens.
type Owner uint8

const (
	Template    Owner = iota // chat markup and prompts
	Environment              // text from an environment: special tokens in it are ordinary text
	Policy                   // sampled by the policy: the only tokens that are trained on
)

// Reward is an amount credited to one token.
type Reward struct {
	Token int
	Value float64
}

// Turn locates one turn in the token list: observation [Observation, Reply), reply [Reply, End).
type Turn struct {
	Observation, Reply, End int
}

// Episode is one played episode: tokens, who wrote them, and what they earned. All per-token slices are as long as IDs
// (token-aligned: entry t speaks of token t given the tokens before it).
type Episode struct {
	Step    int    // training step, 0 for hand-written ones
	Group   int    // members of a group started from the same state
	Index   int    // position in the step's batch
	Tag     string // environment tag
	Label   string // what the environment calls the episode (the problem of a data set); may be empty
	Gold    string // the right answer, where there is one and it is known
	Seed    int64  // environment seed
	IDs     []int32
	Mask    []bool    // true where the policy sampled the token
	Logprob []float32 // under the policy being trained at rollout temperature; 0 where Mask is false. nil = unknown
	Rewards []Reward
	// Components are the named components of the reward, unweighted, in the order of their tokens; nil = none are
	// known.
	Components map[string][]Reward
	// Score is the sum of rewards after penalties and normalisation: what filters, buckets and group advantages use.
	Score   float64
	Success bool
	Stop    string // terminated | actions | turns | length | timeout | panic | error
	Turns   []Turn
	// Contexts are the starts of the token sequences that IDs holds one after another, each of which the policy saw
	// by itself; nil = one sequence. A context mode that forgets makes one for every prompt that does not extend the
	// one before.
	Contexts []int
	// Metrics are those of the environment (means over turns) and of the episode, not saved; sums of components are
	// not among them.
	Metrics map[string]float64
}

// Sequences cuts token-aligned columns of e into those of its contexts.
func (e *Episode) Sequences(visit func(from, to int)) {
	from := 0
	for _, start := range e.Contexts {
		if start > from {
			visit(from, start)
			from = start
		}
	}
	visit(from, len(e.IDs))
}

// PolicyTokens counts the tokens the policy sampled.
func (e *Episode) PolicyTokens() int {
	n := 0
	for _, m := range e.Mask {
		if m {
			n++
		}
	}
	return n
}

// Return is the sum of the rewards: the score before normalisation.
func (e *Episode) Return() float64 { return Sum(e.Rewards) }

// Sum adds up rewards in their order.
func Sum(rewards []Reward) float64 {
	sum := 0.0
	for _, r := range rewards {
		sum += r.Value
	}
	return sum
}
