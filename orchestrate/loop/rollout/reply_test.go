package rollout

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	think, plain := replyFormat{think: true, separator: "||"}, replyFormat{separator: "||"}
	for _, c := range []struct {
		name   string
		format replyFormat
		reply  string // without the prefix
		limit  int
		want   []string
	}{
		{"plain", think, "so</think><answer>Up</answer>", 5, []string{"Up"}},
		{"several, spaced", think, "\n so \n</think>\n\n<answer> Up ||Down ||  Left\n</answer>", 5,
			[]string{"Up", "Down", "Left"}},
		{"empty parts dropped", think, "</think><answer>|| Up || || Down ||</answer>", 5, []string{"Up", "Down"}},
		{"cut to the limit", think, "</think><answer>a||b||c</answer>", 2, []string{"a", "b"}},
		{"text around it", think, "x</think><answer>Up</answer> and more", 5, []string{"Up"}},
		{"first match wins", think, "x</think><answer>Up</answer><think></think><answer>Down</answer>", 5,
			[]string{"Up"}},
		{"text between the blocks", think, "x</think> so <answer>Up</answer>", 5, nil},
		{"think block may hold markers", think, "x</think> oh <think>y</think><answer>Down</answer>", 5,
			[]string{"Down"}},
		{"own think marker", think, "<think>x</think><answer>Up</answer>", 5, []string{"Up"}},
		{"nested answer marker", think, "x</think><answer><answer>Up</answer>", 5, []string{"Up"}},
		{"no closing answer", think, "x</think><answer>Up", 5, nil},
		{"no think", think, "Up</answer>", 5, nil},
		{"empty answer", think, "</think><answer> </answer>", 5, nil},
		{"empty", think, "", 5, nil},
		{"lines inside", think, "a\nb</think><answer>Up\n||\nDown</answer>", 5, []string{"Up", "Down"}},
		{"answer only", plain, "Up || Down</answer>", 5, []string{"Up", "Down"}},
		{"answer only, cut off", plain, "Up || Down", 5, nil},
		{"answer only, own marker", plain, "<answer>Up</answer>", 5, []string{"Up"}},
		{"other separator", replyFormat{separator: ";"}, "Up; Down || x</answer>", 5, []string{"Up", "Down || x"}},
	} {
		if got := c.format.parse(c.reply, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q gives %q, want %q", c.name, c.reply, got, c.want)
		}
	}
}

func TestWriteIsReadBack(t *testing.T) {
	for _, format := range []replyFormat{{true, "||"}, {false, "||"}, {false, ","}} {
		want := []string{"Up", "Move left", "Down"}
		if got := format.parse(format.write(want), 5); !slices.Equal(got, want) {
			t.Errorf("%+v: %q is read as %q", format, format.write(want), got)
		}
	}
}
