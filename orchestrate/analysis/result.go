package analysis

// Result is one bucket's (or the whole batch's) part of the gradient. Maps are by component; a quantity that is not defined or was not
// asked for is absent.
type Result struct {
	Bucket
	Samples, Tokens int     // of the episodes measured: the paper profile may leave some out
	Fraction        float64 // of the batch's episodes
	Low, High       float64 // smallest and largest group spread among the episodes measured

	Norms   map[string]float64 // L2 norm before any clipping (paper profile: the mean over mini-batches)
	Losses  map[string]float64 // policy, entropy, kl, total
	Signals map[string]Signal
	// Cosines between component gradients, by names such as task_kl; Whole with the whole batch's gradient of the same component.
	Cosines, Whole map[string]float64
	GroupNorms     []map[string]float64 // aligned with Groups
	Blocks         []Block
}

// Block is the part of a gradient norm that falls on one block of the model: their squares add up to the squared norm.
type Block struct {
	Name  string // embed_tokens, layers.0, …, norm, lm_head
	Norms map[string]float64
}

// Pair compares the gradients of two buckets.
type Pair struct {
	First, Second, Component string
	Cosine                   float64
	// Unbiased divides by the norms without noise; NaN unless both signals are positive. It may lie outside [-1, 1].
	Unbiased float64
}

// Report holds the buckets in order, and last the whole batch under the name "all".
type Report struct {
	Options Options
	Plan    Plan
	Results []Result
	Pairs   []Pair
}

// whole is the result of all buckets together.
func (r Report) whole() Result { return r.Results[len(r.Results)-1] }
