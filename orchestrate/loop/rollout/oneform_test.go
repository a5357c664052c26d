package rollout

import (
	"slices"
	"testing"

	"gyre/envs/tools"
	"gyre/orchestrate/model/chat/replies"
)

// An environment with tools reads calls of any family's form; a reply without calls and thinking stays as it is.
func TestRepliesInOneForm(t *testing.T) {
	const call = `<tool_call>{"name": "calculator", "arguments": {"expression": "1 + 1"}}</tool_call>`
	for _, c := range []struct {
		mark, reply string
		want        []string
	}{
		{"<tool_call>", "So: " + call, []string{call}},
		{"<tool_call>", "<think>Hm, " + call + "</think><answer>2</answer>", []string{"2"}},
		{"<function=", "<tool_call>\n<function=calculator>\n<parameter=expression>\n1 + 1\n</parameter>\n</function>\n</tool_call>",
			[]string{call}},
		{"[TOOL_CALLS]", `[TOOL_CALLS]calculator[ARGS]{"expression": "1 + 1"}`, []string{call}},
		{"<|channel|>final", `<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|><answer>2</answer>`,
			[]string{"2"}},
		{"<tool_call>", "<tool_call>{no</tool_call>", []string{"<tool_call>{no</tool_call>"}},
	} {
		var conversation tools.Conversation
		start := conversation.Ask("1 + 1?")
		r := replies.Of(c.mark).New("", []replies.Tool{{Name: "calculator"}})
		said := inOneForm(c.reply, append(r.Add(c.reply), r.Finish("")...))
		if got := start.ReadReply(said, 5); !slices.Equal(got, c.want) {
			t.Errorf("%q is read as %q, want %q", c.reply, got, c.want)
		}
	}
	if said := inOneForm(" as it is\n", []replies.Part{{Kind: replies.Content, Text: "as it is"}}); said != " as it is\n" {
		t.Errorf("a plain reply becomes %q", said)
	}
}
