package generation

import (
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"

	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/model/chat/bpe"
)

func ids(text string) []int32 {
	var list []int32
	for _, b := range []byte(text) {
		list = append(list, int32(b))
	}
	return list
}

// Pieces are well formed and join to the whole text, however the bytes arrive.
func TestPiecesJoinToTheText(t *testing.T) {
	property := func(raw []byte, cuts []byte) bool {
		text := NewText(letters{}, nil)
		joined, rest := "", ids(string(raw)+"é☃😀\xf0\x9f")
		whole := bpe.ToValidUTF8(string(raw) + "é☃😀\xf0\x9f")
		for _, c := range cuts {
			n := min(int(c%5), len(rest))
			piece := text.Add(rest[:n])
			if !utf8.ValidString(piece) {
				return false
			}
			joined, rest = joined+piece, rest[n:]
		}
		joined += text.Add(rest)
		return joined+text.Finish() == whole
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

// What a reply's text is does not depend on how it arrives, where bytes are tokens and a metaspace begins the text.
func TestPiecesOfBytesJoinToTheText(t *testing.T) {
	tokenizer, err := chat.Load("../../model/chat/bpe/testdata/llama2.json")
	if err != nil {
		t.Fatal(err)
	}
	property := func(raw []uint16) bool {
		var reply []int32
		for _, id := range raw {
			if reply = append(reply, int32(id)%int32(tokenizer.VocabSize())); id > 1<<15 {
				reply[len(reply)-1] = int32(id) % 259 // special tokens and bytes
			}
		}
		text, joined := NewText(tokenizer, nil), ""
		for i := range reply {
			piece := text.Add(reply[i : i+1])
			if joined += piece; !utf8.ValidString(piece) {
				return false
			}
		}
		return joined+text.Finish() == tokenizer.Decode(reply, true)
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

func TestTextEndsBeforeAStopString(t *testing.T) {
	for _, c := range []struct {
		text, want string
		stops      []string
	}{
		{"go</answer>on", "go", []string{"</answer>"}},
		{"a</ans b</answer>", "a</ans b", []string{"</answer>"}},
		{"a</ans", "a</ans", []string{"</answer>"}},
		{"aaab", "a", []string{"aab", "aac"}},
		{"xENDy", "x", []string{"NDy", "END"}},
		{"é☃!", "é", []string{"☃"}},
		{"plain", "plain", nil},
	} {
		for size := 1; size <= len(c.text); size++ {
			text, joined := NewText(letters{}, c.stops), ""
			for rest := ids(c.text); len(rest) > 0; {
				n := min(size, len(rest))
				joined += text.Add(rest[:n])
				rest = rest[n:]
				if !strings.HasPrefix(c.want, joined) {
					t.Fatalf("%q by %d: handed out %q, which is not the start of %q", c.text, size, joined, c.want)
				}
			}
			if joined += text.Finish(); joined != c.want {
				t.Errorf("%q by %d: %q, want %q", c.text, size, joined, c.want)
			}
		}
	}
}

// What cannot become a stop string is handed out at once, and special tokens have no text.
func TestNothingIsHeldBackForLong(t *testing.T) {
	text := NewText(letters{}, []string{"</answer>"})
	for _, step := range []struct {
		add  []int32
		want string
	}{
		{ids("hi"), "hi"}, {ids(" <"), " "}, {ids("b"), "<b"}, {[]int32{256}, ""}, {ids("\xe2\x98"), ""},
		{ids("\x83"), "☃"},
		{ids("</answer"), ""}, {ids("!"), "</answer!"},
	} {
		if got := text.Add(step.add); got != step.want {
			t.Errorf("after %v: %q, want %q", step.add, got, step.want)
		}
	}
}
