package config

import (
	"reflect"
	"slices"
)

// Importance corrects for tokens that another policy drew than the one that is trained: replayed episodes, or a sampler
// that is not the trainer. W is the proximal policy's probability over the behaviour policy's.
type Importance struct {
	// Sets the keys below to verl's rollout correction of that name; keys that are given win.
	Preset string `toml:"preset" oneof:",token_tis,seq_tis,token_icepop,seq_mis,geo_rs,geo_rs_token_tis,geo_rs_seq_tis,k3_rs,k3_rs_token_tis,k3_rs_seq_tis"`
	// What weighs a token's loss: W clamped to low and high (truncate), or W inside them and 0 outside (mask).
	Correction string `toml:"correction" default:"none" oneof:"none,truncate,mask"`
	// W of the token, of its whole episode (sequence), or the geometric mean over the episode.
	Level string `toml:"level" default:"token" oneof:"token,sequence,geometric"`
	// Lower bound of W.
	Low float64 `toml:"low" default:"0.0" range:"[0,)"`
	// Upper bound of W.
	High float64 `toml:"high" default:"2.0" range:"[0,)"`
	// What is left out of the update when its W is outside reject_low and reject_high: tokens, or episodes by the
	// product or the geometric mean of their tokens; k3 leaves out episodes whose divergence exceeds reject_high.
	Reject string `toml:"reject" default:"none" oneof:"none,token,sequence,geometric,k3"`
	// Lower bound of W for rejection.
	RejectLow float64 `toml:"reject_low" default:"0.5" range:"[0,)"`
	// Upper bound of W, or of the divergence, for rejection.
	RejectHigh float64 `toml:"reject_high" default:"2.0" range:"[0,)"`
}

// Weighs reports whether tokens get weights.
func (i Importance) Weighs() bool { return i.Correction != "" && i.Correction != "none" }

// Rejects reports whether tokens may be left out.
func (i Importance) Rejects() bool { return i.Reject != "" && i.Reject != "none" }

// importancePresets are verl's decoupled_* corrections by our names.
var importancePresets = map[string]Importance{
	"token_tis":        {Correction: "truncate", Level: "token", High: 2},
	"seq_tis":          {Correction: "truncate", Level: "sequence", High: 2},
	"token_icepop":     {Correction: "mask", Level: "token", Low: 0.5, High: 5},
	"seq_mis":          {Correction: "truncate", Level: "sequence", High: 2, Reject: "sequence", RejectLow: 0.5, RejectHigh: 2},
	"geo_rs":           {Reject: "geometric", RejectLow: 0.999, RejectHigh: 1.001},
	"geo_rs_token_tis": {Correction: "truncate", Level: "token", High: 2, Reject: "geometric", RejectLow: 0.999, RejectHigh: 1.001},
	"geo_rs_seq_tis":   {Correction: "truncate", Level: "sequence", High: 2, Reject: "geometric", RejectLow: 0.999, RejectHigh: 1.001},
	"k3_rs":            {Reject: "k3", RejectHigh: 0.01},
	"k3_rs_token_tis":  {Correction: "truncate", Level: "token", High: 2, Reject: "k3", RejectHigh: 0.01},
	"k3_rs_seq_tis":    {Correction: "truncate", Level: "sequence", High: 2, Reject: "k3", RejectHigh: 0.01},
}

// usePreset sets the keys of the preset that are not given.
func (i *Importance) usePreset(given func(path string) bool) {
	preset := reflect.ValueOf(importancePresets[i.Preset])
	for f := range preset.NumField() {
		key := preset.Type().Field(f).Tag.Get("toml")
		if !preset.Field(f).IsZero() && !given("importance."+key) {
			reflect.ValueOf(i).Elem().Field(f).Set(preset.Field(f))
		}
	}
}

// Of losses that compare with the policy that drew the tokens, and of those whose tokens are averaged within episodes
// where no aggregation is given, as in their papers. A test of package trainer compares them with the table of losses.
var (
	behaviourLosses = []string{"importance_sampling", "dro"}
	episodeLosses   = []string{"gspo", "sapo"}
)

// Corrects reports whether tokens are weighed or left out for their behaviour policy.
func (c *Config) Corrects() bool {
	return c.Importance.Weighs() || c.Importance.Rejects() || c.Actor.Loss == "decoupled_ppo"
}

func (c *Config) checkImportance(report func(key, format string, args ...any)) {
	const bounds = "%v is larger than the upper bound, %v"
	i := c.Importance
	if i.Low > i.High {
		report("importance.low", bounds, i.Low, i.High)
	}
	if i.RejectLow > i.RejectHigh && i.Reject != "k3" {
		report("importance.reject_low", bounds, i.RejectLow, i.RejectHigh)
	}
	for key, set := range map[string]bool{"correction": i.Weighs(), "reject": i.Rejects()} {
		if set && slices.Contains(behaviourLosses, c.Actor.Loss) {
			report("importance."+key, "actor.loss = %q compares with the behaviour policy already: a correction would be "+
				"the second", c.Actor.Loss)
		}
	}
}
