package advantage

// Property says how the expectation of an estimator's policy gradient relates to the gradient of the expected return.
type Property string

// The properties.
const (
	Unbiased Property = "unbiased" // they are equal
	Scaled   Property = "scaled"   // they differ by a positive factor, which the learning rate takes up
	Biased   Property = "biased"   // they point in different directions
)

// Claim is what is known of an estimator: in expectation over independent episodes of the policy that learns, with
// nothing discounted, with the exact values where it has a critic, and with actor.loss_aggregation =
// "seq-mean-token-sum". The laboratory (orchestrate/study/laboratory) measures whether it holds.
type Claim struct {
	Linear Property // before anything is divided by a deviation or whitened
	Whole  Property // as it is by default
	Why    string
}
