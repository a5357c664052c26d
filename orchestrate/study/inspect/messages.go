package inspect

import (
	"slices"
	"strings"

	"gyre/orchestrate/model/chat"
)

// roles are those that chat templates name.
var roles = []string{"system", "user", "assistant", "tool"}

// read takes an observation's tokens apart into messages, and what opens the reply that follows. A template writes a
// special token, the name of a role, perhaps another special token, and what that role says.
func read(ids []int32, tokenizer *chat.Tokenizer) (messages []chat.Message, opening string) {
	role, named := "user", false // named: the name stood alone, what comes next is said
	for _, text := range parts(ids, tokenizer) {
		word, rest, broken := strings.Cut(strings.TrimLeft(text, " \n"), "\n")
		if word = strings.TrimSpace(word); !named && slices.Contains(roles, word) {
			role, named, text = word, !broken, rest
		} else {
			named = false
		}
		if text = strings.Trim(text, "\n"); text == "" || named {
			continue
		}
		if role == "assistant" { // what the reply goes on from
			opening += text
			continue
		}
		messages, role = append(messages, chat.Message{Role: role, Content: text}), "user"
	}
	return messages, opening
}

// parts are the texts between special tokens.
func parts(ids []int32, tokenizer *chat.Tokenizer) (out []string) {
	from := 0
	for i := range len(ids) + 1 {
		if i == len(ids) || tokenizer.Special(ids[i]) {
			if from < i {
				out = append(out, tokenizer.Decode(ids[from:i], false))
			}
			from = i + 1
		}
	}
	return out
}

// textOf is what a reply says, without the token that ends it.
func textOf(reply []int32, tokenizer *chat.Tokenizer) string {
	if n := len(reply); n > 0 && slices.Contains(tokenizer.StopIDs(), reply[n-1]) {
		reply = reply[:n-1]
	}
	return tokenizer.Decode(reply, false)
}
