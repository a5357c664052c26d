package answer

import "strings"

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
