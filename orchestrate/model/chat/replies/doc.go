// Package replies takes replies of models apart into what was thought, what is said and calls of tools, whole or while
// they grow.
//
//	template, err := replies.Parse(data) // a response_template of a tokenizer_config.json
//	reader := template.New(prompt, tools)
//	for … { parts := reader.Add(text) }
//	parts := reader.Finish(ending)
//
// How a family writes replies is data: transformers' response_template (5.13 and later). [Of] gives what is shipped for
// families whose checkpoints carry none, by what their chat templates write. There is no code for a family.
//
// It differs from transformers in this. A call that cannot be read stays text and is counted. Text of several regions
// of one field is joined, as nothing that was passed on can be taken back. A closing delimiter within a text of JSON is
// part of it, and JSON without one ends with its value. A tag that is not closed makes a call malformed. Of a prompt
// without the anchor, an opening delimiter at its end alone is read. White space beside a call or a thought means
// nothing. Beyond transformers, tool_calls.ANY fills tool_calls as well, a group "content" of an opening pattern
// belongs to the region, and the argument "separator" of json parts several values.
package replies
