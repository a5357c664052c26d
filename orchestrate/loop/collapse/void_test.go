package collapse

import (
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// Each condition that makes a step void is named with its remedy, and a sound step is silent.
func TestVoid(t *testing.T) {
	sound := func() []*episode.Episode {
		var list []*episode.Episode
		for i := range 20 {
			list = append(list, &episode.Episode{Group: i / 4, Score: float64(i % 4), Turns: make([]episode.Turn, 1),
				Metrics: map[string]float64{"num_actions": 1, "action_is_valid": float64(i % 2), "readable": float64(i % 2)}})
		}
		return list
	}
	every := func(change func(*episode.Episode)) func([]*episode.Episode) {
		return func(list []*episode.Episode) {
			for _, e := range list {
				change(e)
			}
		}
	}
	cut := func(e *episode.Episode) { e.Cut = []int{0} }
	for name, c := range map[string]struct {
		change func([]*episode.Episode)
		want   []string // in each line
	}{
		"sound":     {func([]*episode.Episode) {}, nil},
		"half cut":  {func(list []*episode.Episode) { every(cut)(list[:10]) }, nil},
		"most cut":  {func(list []*episode.Episode) { every(cut)(list[:18]) }, []string{"18 of 20 replies were cut off: raise rollout.max_tokens = 7"}},
		"all cut":   {every(cut), []string{"none of the 20 replies ended by itself"}},
		"invalid":   {every(func(e *episode.Episode) { e.Metrics["action_is_valid"] = 0 }), []string{"no reply named a valid action: where the environment has an expert, `gyre sft`"}},
		"no action": {every(func(e *episode.Episode) { e.Metrics["num_actions"] = 0 }), []string{"no reply named a valid action"}},
		"form":      {every(func(e *episode.Episode) { e.Metrics["readable"] = 0 }), []string{"no reply has its answer in a form that the grader reads"}},
		"alike": {every(func(e *episode.Episode) { e.Score = float64(e.Group) }),
			[]string{"the episodes of each group earned the same"}},
		"no room": {func(list []*episode.Episode) {
			every(func(e *episode.Episode) { e.Stop, e.Turns = episode.Length, nil })(list[:10])
			list[10].Stop = episode.Length // after a reply
		}, []string{"10 of 20 prompts left no room for a reply of 7 tokens, which earns nothing: raise rollout.max_length = 90"}},
		"several": {every(func(e *episode.Episode) { cut(e); e.Score = 1 }), []string{"none of the 20", "earned the same"}},
		"tools":   {every(func(e *episode.Episode) { e.Metrics["tools_unseen"] = 1 }), []string{"does not show the tools"}},
		"outside": {every(func(e *episode.Episode) { e.Metrics["num_actions"], e.Metrics["branches"] = 0, 1 }), nil},
		"given":   {every(func(e *episode.Episode) { e.Metrics = nil }), nil},
	} {
		list := sound()
		c.change(list)
		got := Void(list, &config.Config{Rollout: config.Rollout{MaxTokens: 7, MaxLength: 90}, Algorithm: config.Algorithm{Advantage: "grpo"}})
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
			continue
		}
		for i, line := range got {
			if !strings.Contains(line, c.want[i]) || !strings.Contains(line, "docs/stuck.md, section") {
				t.Errorf("%s: %q, want %q and the page", name, line, c.want[i])
			}
		}
	}
	if got := Void(nil, &config.Config{}); got != nil {
		t.Errorf("without episodes: %q", got)
	}
}
