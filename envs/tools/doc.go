// Package tools asks questions that are easier with tools: a calculator and Python, which a policy calls in the
// format that chat templates teach.
//
//	<tool_call>{"name": "calculator", "arguments": {"expression": "37 * 12"}}</tool_call>
//
// A reply with calls is answered by one message of role "tool" per call; a reply without is the answer and ends the
// episode. What a tool says is the environment's text: it is never trained on, and no markup in it is taken for
// markup.
package tools
