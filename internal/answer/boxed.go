package answer

import (
	"regexp"
	"strings"
)

const (
	boxed       = `\boxed`
	boxedSpaced = `\boxed `
	fboxed      = `\fbox`
)

// LastBoxed returns the last box of a text with its command: `\boxed{…}`, `\boxed …` up to the next dollar, or,
// where no \boxed occurs at all, `\fbox{…}`. There is no way back to an earlier box when the last one is never
// closed. Braces that are escaped count as braces.
func LastBoxed(text string) (string, bool) {
	start := strings.LastIndex(text, boxed)
	if start < 0 {
		if start = strings.LastIndex(text, fboxed); start < 0 {
			return "", false
		}
	}
	if strings.HasPrefix(text[start:], boxedSpaced) {
		rest := text[start+len(boxedSpaced):]
		rest, _, _ = strings.Cut(rest, "$")
		return boxedSpaced + rest, true
	}
	depth := 0
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[start : i+1], true
			}
		}
	}
	return "", false
}

// unbox takes the command off what LastBoxed returns. ok is false when the text is not a box of a known form.
func unbox(box string) (content string, ok bool) {
	if rest, is := strings.CutPrefix(box, boxedSpaced); is {
		return rest, true
	}
	for _, command := range []string{boxed + "{", fboxed + "{"} {
		if rest, is := strings.CutPrefix(box, command); is && strings.HasSuffix(rest, "}") {
			return rest[:len(rest)-1], true
		}
	}
	return "", false
}

// Boxed returns the content of a text's last box, as it is written.
func Boxed(text string) (string, bool) {
	box, found := LastBoxed(text)
	if !found {
		return "", false
	}
	return unbox(box)
}

// AfterThought is a reply without what is thought before its first </think>.
func AfterThought(reply string) string {
	if _, after, found := strings.Cut(reply, "</think>"); found {
		return after
	}
	return reply
}

var block = regexp.MustCompile(`(?s)<answer>(.*?)</answer>`)

// Block returns the content of a text's first answer block, which the prompt may have opened.
func Block(text string) (string, bool) {
	if match := block.FindStringSubmatch(text); match != nil {
		return match[1], true
	}
	before, _, closed := strings.Cut(text, "</answer>")
	if !closed {
		return "", false
	}
	return before, true
}
