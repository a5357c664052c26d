package config

// UsesCritic reports whether the advantage estimator needs a value network.
func (a Algorithm) UsesCritic() bool { return a.Advantage == "gae" || a.Advantage == "bi_level_gae" }

// UsesGroups reports whether episodes are compared with the others of their group.
func (a Algorithm) UsesGroups() bool {
	return a.Advantage == "grpo" || a.Advantage == "rloo" || a.Advantage == "reinforce_pp_baseline"
}
