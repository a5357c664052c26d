package rollout

import (
	"regexp"
	"strings"
)

// replyFormat is how a reply is written: an optional think block and an answer block with actions.
type replyFormat struct {
	think     bool
	separator string
}

var (
	thinkAnswer = regexp.MustCompile(`(?s)<think>(.*?)</think>\s*<answer>(.*?)</answer>`)
	answerOnly  = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)
	markers     = strings.NewReplacer("<think>", "", "</think>", "", "<answer>", "", "</answer>", "")
)

// prefix opens the reply's first block. It is put into the prompt, so the template owns it and the policy continues.
func (f replyFormat) prefix() string {
	if f.think {
		return "<think>"
	}
	return "<answer>"
}

// parse reads the actions of a reply, given without its prefix: the first complete match counts, at most limit actions
// are taken. A reply that is cut off or lacks a block has no actions.
func (f replyFormat) parse(reply string, limit int) []string {
	pattern, answer := answerOnly, 1
	if f.think {
		pattern, answer = thinkAnswer, 2
	}
	match := pattern.FindStringSubmatch(f.prefix() + reply)
	if match == nil {
		return nil
	}
	var actions []string
	for _, action := range strings.Split(markers.Replace(match[answer]), f.separator) {
		if action = strings.TrimSpace(action); action != "" && len(actions) < limit {
			actions = append(actions, action)
		}
	}
	return actions
}

// write is the shortest reply, without its prefix, that parse reads as these actions.
func (f replyFormat) write(actions []string) string {
	answer := strings.Join(actions, " "+f.separator+" ") + "</answer>"
	if f.think {
		return "</think><answer>" + answer
	}
	return answer
}

// example shows the format with the given answer.
func (f replyFormat) example(answer string) string {
	if f.think {
		return "<think>your reasoning</think><answer>" + answer + "</answer>"
	}
	return "<answer>" + answer + "</answer>"
}
