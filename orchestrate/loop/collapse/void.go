package collapse

import (
	"fmt"
	"slices"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// mostCut is the share of cut replies from which on they are named: what is cut off has hardly an answer.
const mostCut = 0.9

// Void lists what keeps the episodes of a step from teaching anything, each with its remedy; nil where nothing of the
// kind was found. The numbers are those of the sections of docs/stuck.md.
func Void(episodes []*episode.Episode, c *config.Config) (found []string) {
	say := func(section int, format string, args ...any) {
		found = append(found, fmt.Sprintf(format, args...)+fmt.Sprintf(" (docs/stuck.md, section %d)", section))
	}
	replies, cut := 0, 0
	for _, e := range episodes {
		replies, cut = replies+len(e.Turns), cut+len(e.Cut)
	}
	room := fmt.Sprintf("raise rollout.max_tokens = %d, or ask for shorter replies, as rollout.think = false does",
		c.Rollout.MaxTokens)
	switch {
	case cut > 0 && cut == replies:
		say(2, "none of the %d replies ended by itself, all were cut off: %s; a policy that never writes its end token "+
			"learns to from `gyre sft`, or is another model", replies, room)
	case cut > 0 && float64(cut) >= mostCut*float64(replies):
		say(2, "%d of %d replies were cut off: %s", cut, replies, room)
	}
	if n := count(episodes, leftNoRoom); n > 0 {
		say(2, "%d of %d prompts left no room for a reply of %d tokens, which earns nothing: raise rollout.max_length = "+
			"%d, or leave long prompts of a data set out by its options max_prompt_length and tokenizer", n,
			len(episodes), c.Rollout.MaxTokens, c.Rollout.MaxLength)
	}
	if all(episodes, func(e *episode.Episode) bool { return e.Metrics["tools_unseen"] > 0 }) {
		say(2, "the chat template does not show the tools that the agent offers, so that the policy knows of none: name "+
			"one that does in model.chat_template, or describe the tools in a message")
	}
	if all(episodes, tookNoAction) {
		say(2, "no reply named a valid action: where the environment has an expert, `gyre sft` with this configuration "+
			"and another run.name teaches the policy the format (then train with model.path=…/global_step_N/actor); "+
			"elsewhere take a policy that follows instructions, with rollout.prompt = \"chat\"")
	}
	if all(episodes, unreadable) {
		say(2, "no reply has its answer in a form that the grader reads: say in the environment's option instruction "+
			"which one it is, or teach it by `gyre sft`")
	}
	if c.Algorithm.UsesGroups() && alike(episodes) {
		say(3, "the episodes of each group earned the same, so that nothing tells good from bad")
	}
	return found
}

func all(episodes []*episode.Episode, is func(*episode.Episode) bool) bool {
	return len(episodes) > 0 && count(episodes, is) == len(episodes)
}

func count(episodes []*episode.Episode, is func(*episode.Episode) bool) (n int) {
	for _, e := range episodes {
		if is(e) {
			n++
		}
	}
	return n
}

// leftNoRoom reports whether an episode ended before its first reply, because of its prompt's length.
func leftNoRoom(e *episode.Episode) bool { return e.Stop == episode.Length && len(e.Turns) == 0 }

// tookNoAction reports whether all that an episode's replies asked for is known to be no action.
func tookNoAction(e *episode.Episode) bool {
	if _, outside := e.Metrics["branches"]; outside { // a program's episodes have no actions
		return false
	}
	actions, counted := e.Metrics["num_actions"]
	valid, judged := e.Metrics["action_is_valid"]
	return counted && (actions == 0 || judged && valid == 0)
}

// unreadable reports whether an episode's grader is known to have found no answer.
func unreadable(e *episode.Episode) bool {
	readable, judged := e.Metrics["readable"]
	return judged && readable == 0
}

// alike reports whether there are groups of several episodes, in each of which all have the same score.
func alike(episodes []*episode.Episode) bool {
	scores := map[int][]float64{}
	for _, e := range episodes {
		scores[e.Group] = append(scores[e.Group], e.Score)
	}
	several := false
	for _, own := range scores {
		if slices.Min(own) != slices.Max(own) {
			return false
		}
		several = several || len(own) > 1
	}
	return several
}
