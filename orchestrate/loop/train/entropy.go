package train

// EntropyControl is a coefficient of the entropy bonus that follows a target (Skywork-OR1, arXiv 2505.22312, 3.2.5): it
// rises by a step while the entropy is below the target and falls by one while it is above, between 0 and a bound, and
// counts only while the entropy is at most the target. The entropy is that of the update before.
type EntropyControl struct {
	Coef    float64  `json:"coef"`
	Entropy *float64 `json:"entropy,omitempty"` // nats per token; nil: nothing was measured yet
}

// Bonus is the coefficient of the coming update.
func (e *EntropyControl) Bonus(target float64) float64 {
	if e.Entropy != nil && *e.Entropy > target {
		return 0
	}
	return e.Coef
}

// Measured adapts the coefficient to the entropy that an update found.
func (e *EntropyControl) Measured(entropy, target, step, most float64) {
	e.Entropy = &entropy
	switch {
	case entropy < target:
		e.Coef = min(e.Coef+step, most)
	case entropy > target:
		e.Coef = max(e.Coef-step, 0)
	}
}
