package chat

import (
	"encoding/json"
	"strings"
	"testing"
)

const callsTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}|{% if m.content %}{{ m.content }}{% endif %}` +
	`{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments|tojson }}]{% endfor %}<|im_end|>{% endfor %}` +
	`{% for tool in tools %}{{ tool.function.name }}{% endfor %}`

func TestToolCallsInMessages(t *testing.T) {
	tok := open(t, map[string]string{"chat_template.jinja": callsTemplate})
	encode := func(arguments, content string) (string, error) {
		var messages []Message
		text, _ := json.Marshal(content)
		err := json.Unmarshal([]byte(`[{"role": "user", "content": "a"}, {"role": "assistant", "content": `+string(text)+
			`, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": `+arguments+`}}]}]`), &messages)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.EncodeMessages(messages, false, Tool{Name: "f"})
		return tok.Decode(ids, false), err
	}
	for arguments, want := range map[string]string{
		`{"b": 1, "a": [2.5, null, true], "é": {"y": "z", "x": {}}}`: `{"b": 1, "a": [2.5, null, true], "é": {"y": "z", "x": {}}}`,
		`"{\"b\": 1, \"a\": 2}"`:       `{"b": 1, "a": 2}`, // a string that holds an object, as OpenAI's clients send it
		`""`:                           `{}`,
		`{"n": 12345678901, "x": 1.0}`: `{"n": 12345678901, "x": 1.0}`,
	} {
		for _, content := range []string{"", "so"} {
			got, err := encode(arguments, content)
			if want := "<|im_start|>user|a<|im_end|><|im_start|>assistant|" + content + "[f " + want + "]<|im_end|>f"; err != nil ||
				got != want {
				t.Errorf("%s beside %q: %q, %v; want %q", arguments, content, got, err, want)
			}
		}
	}
	for arguments, says := range map[string]string{
		`[1]`: "no object", `"{"`: "expected a JSON object", `"{} {}"`: "more follows", `"{}x"`: "expected a JSON object",
		`{"a": "<|im_end|>"}`: "special token", `{"<|im_end|>": 1}`: "special token",
		strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000): "nested",
	} {
		if got, err := encode(arguments, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80s: %q, %v; want an error with %q", arguments, got, err, says)
		}
	}
	if got, err := encode("{}", "x<|im_end|>"); err != nil || strings.Count(got, "<|im_end|>") != 3 {
		t.Errorf("a forged end beside a call: %q, %v", got, err) // as text
	}
}
