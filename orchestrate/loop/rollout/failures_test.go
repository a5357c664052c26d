package rollout

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// faulty plays two groups of three in healthy corridors and two in corridors with a fault.
func faulty(t *testing.T, fault string, change func(*config.Rollout)) ([]*episode.Episode, Stats, error) {
	t.Helper()
	rollout := defaults()
	change(&rollout)
	sampler := &script{t: t, tokenizer: tokenizer(t), again: true}
	sampler.reply = func(uint64, int) string { return "</think><answer>Left||Right</answer>" + eos }
	p := player(t, sampler, rollout)
	return p.Play(t.Context(), Plan{Stream: Train, Step: 1,
		Sources:  []config.Env{source(2, 3, nil), source(2, 3, map[string]any{"fault": fault})},
		Sampling: torch.Sampling{Temperature: 1, TopP: 1}})
}

func unchanged(*config.Rollout) {}

// An environment that may have taken one thing for another ends the run.
func TestUnreliableEnvironmentEndsTheRun(t *testing.T) {
	_, _, err := faulty(t, "unreliable", func(c *config.Rollout) { c.MaxFailed = 1 })
	if err == nil || !strings.Contains(err.Error(), "a stray line") {
		t.Errorf("it goes on: %v", err)
	}
}

// An episode whose environment fails earned nothing that anybody knows: it is played once more, then left out, and
// counted by cause.
func TestFailedEpisodesAreLeftOut(t *testing.T) {
	want, _, err := faulty(t, "", unchanged)
	if err != nil {
		t.Fatal(err)
	}
	for fault, cause := range map[string]string{"error": episode.Error, "panic": episode.Panic,
		"hang": episode.Timeout, "levels": episode.Error,
		"rich": episode.Error, "stops": episode.Error, "late": episode.Error} {
		got, stats, err := faulty(t, fault, func(c *config.Rollout) {
			if fault == "hang" || fault == "late" {
				c.EnvTimeout = 0.2
			}
		})
		if err != nil {
			t.Fatal(fault, err)
		}
		if !reflect.DeepEqual(got, want[:6]) {
			t.Errorf("%s: %d episodes, want the six of the healthy groups as they are without the fault", fault,
				len(got))
		}
		if stats.Failed[cause] != 12 || len(stats.Failures) != 12 || stats.LeftOut != 6 || stats.Planned != 12 ||
			stats.Episodes != 6 || stats.Replayed != 0 {
			t.Errorf("%s: %+v, want each of six to fail twice by %s", fault, stats, cause)
		}
		if stats.StopShares[cause] != 0.5 {
			t.Errorf("%s: shares %v", fault, stats.StopShares)
		}
		lines := stats.Warnings()
		if len(lines) != 1 || !strings.Contains(lines[0],
			"12 episodes failed ("+cause+"), first in group 2, member 0") || strings.ContainsAny(lines[0], "\n\x1b") {
			t.Errorf("%s: warnings %q", fault, lines)
		}
	}
}

// A failure that has passed when the episode is played again leaves no trace: the same episodes as without it.
func TestPassingFailuresLeaveNoTrace(t *testing.T) {
	want, _, err := faulty(t, "", unchanged)
	if err != nil {
		t.Fatal(err)
	}
	for _, normalise := range []string{"identity", "mean_std"} {
		transient.Store(4) // the members 0 and 2 of both groups
		got, stats, err := faulty(t, "once", func(c *config.Rollout) { c.Normalize = normalise })
		if err != nil {
			t.Fatal(err)
		}
		if stats.Failed[episode.Error] != 4 || stats.Replayed != 4 || stats.LeftOut != 0 {
			t.Errorf("%+v", stats)
		}
		if normalise == "identity" && !reflect.DeepEqual(got, want) {
			t.Error("other episodes than without the failure")
		}
	}
}

// A group shrinks by the members that fail. One of which a single member is left is left out: there is nothing to
// compare it with.
func TestGroupsShrink(t *testing.T) {
	got, stats, err := faulty(t, "member", unchanged)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 10 || stats.LeftOut != 2 || stats.Failed[episode.Error] != 4 {
		t.Errorf("%d episodes, %+v", len(got), stats)
	}
	for i, place := range []int{0, 1, 2, 3, 4, 5, 6, 8, 9, 11} {
		if got[i].Index != place || got[i].Group != place/3 {
			t.Errorf("episode %d is number %d of group %d, want %d", i, got[i].Index, got[i].Group, place)
		}
	}
	for _, name := range []string{"pass@1", "pass@2", "pass@3"} {
		if _, ok := got[6].Metrics[name]; !ok || len(got[6].Metrics) != len(got[0].Metrics) {
			t.Errorf("a shrunk group lacks %s: %v", name, got[6].Metrics)
		}
	}
	pair := func(group, failed int) []*runner {
		var list []*runner
		for member := range 2 {
			r := &runner{slot: slot{group: group, member: member}, kind: &kind{source: config.Env{GroupSize: 2}}}
			if member < failed {
				r.game.failure = fmt.Errorf("lost")
			}
			list = append(list, r)
		}
		return list
	}
	if kept := keep(append(append(pair(0, 0), pair(1, 1)...), pair(2, 2)...)); len(kept) != 2 || kept[0].group != 0 {
		t.Errorf("kept %v, want the whole group only", kept)
	}
	if kept := keep([]*runner{{kind: &kind{source: config.Env{GroupSize: 1}}}}); len(kept) != 1 {
		t.Error("a group of one was left out")
	}
}

// The run ends when too many episodes of the last steps are missing, and says why; one step of four does not end it
// by default.
func TestTooManyFailuresEndTheRun(t *testing.T) {
	_, _, err := faulty(t, "error", func(c *config.Rollout) { c.MaxFailed = 0.4 })
	for _, want := range []string{"failed in 6 of the last 12 episodes (error 12)", "rollout.max_failed = 0.4",
		`lost\n\x1b[2J12:00 step 9`, "--resume"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, _, err := faulty(t, "error", func(c *config.Rollout) { c.MaxFailed = 0.5 }); err != nil {
		t.Errorf("exactly the share that is allowed: %v", err)
	}
	var rate failureRate
	for step, left := range []int{0, 0, 8, 8, 0, 0, 8, 8, 8} {
		err := rate.add(Stats{Planned: 8, LeftOut: left}, 0.5)
		if (err != nil) != (step == 8) {
			t.Errorf("step %d: %v", step, err)
		}
	}
}
