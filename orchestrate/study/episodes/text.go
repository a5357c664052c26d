package episodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"

	"gyre/internal/quote"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/loop/rollout"
)

// margin is what stands before the text of a turn: its kind and a bar.
const margin = 13

// Text is the episode in lines of at most width characters. What others wrote cannot move a cursor.
func (v *View) Text(width int) string {
	var out strings.Builder
	head := fmt.Sprintf("%s %d, group %d, episode %d: %s, seed %d, %s, score %.4g, tokens %d, ended: %s", v.Kind,
		v.Step, v.Group, v.Episode, quote.Lines(v.Tag), v.Seed, episode.Verdict(v.Success, v.Unjudged), v.Score, v.Entry.Tokens,
		cmp.Or(v.Stop, "unknown"))
	for line := range strings.Lines(text.WrapSoft(head, width)) {
		fmt.Fprintln(&out, strings.TrimRight(line, " \n"))
	}
	block := func(kind, said string) {
		if strings.TrimSpace(said) == "" {
			return
		}
		for i, line := range strings.Split(quote.Lines(strings.Trim(said, "\n")), "\n") {
			for k, piece := range strings.Split(text.WrapSoft(line, max(20, width-margin-2)), "\n") {
				if i+k > 0 {
					kind = ""
				}
				out.WriteString(strings.TrimRight(fmt.Sprintf("%*s | %s", margin-1, kind,
					strings.TrimRight(piece, " ")), " ") + "\n")
			}
		}
	}
	block("task", v.Label)
	block("answer", v.Gold)
	frames := []rollout.Frame{{Board: v.Start}}
	for i, turn := range v.Turns {
		ended := ""
		if turn.Cut {
			ended = ", its reply cut off by max_tokens"
		}
		fmt.Fprintf(&out, "\nturn %d%s\n", i+1, ended)
		for _, m := range turn.Messages {
			block(cmp.Or(m.Role, "prompt"), m.Text)
		}
		for _, p := range turn.Parts {
			block(p.Kind, p.Text)
		}
		block("reward", rewards(turn.Reward, turn.Components))
		frames = append(frames, rollout.Frame{Actions: turn.Actions, Board: turn.Board})
	}
	if v.Start != "" {
		fmt.Fprintf(&out, "\nboards, after the actions above each\n\n%s", Strip(frames, width-2))
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// rewards are a sum and its named parts.
func rewards(sum float64, components map[string]float64) string {
	said := fmt.Sprintf("%+.4g", sum)
	for _, name := range slices.Sorted(maps.Keys(components)) {
		said += fmt.Sprintf("  %s %.4g", name, components[name])
	}
	return said
}

// Strip draws boards side by side, with the actions above each, in rows of at most width columns.
func Strip(frames []rollout.Frame, width int) string {
	blocks := make([][]string, len(frames))
	columns, lines := 0, 0
	for i, f := range frames {
		head := cmp.Or(strings.ToLower(strings.Join(f.Actions, ", ")), "(none)")
		if i == 0 {
			head = "start"
		}
		blocks[i] = append([]string{head}, strings.Split(f.Board, "\n")...)
		lines = max(lines, len(blocks[i]))
		for _, line := range blocks[i] {
			columns = max(columns, utf8.RuneCountInString(line)+3)
		}
	}
	var out strings.Builder
	for row := range slices.Chunk(blocks, max(width/columns, 1)) {
		for k := range lines {
			text := " "
			for _, block := range row {
				line := ""
				if k < len(block) {
					line = block[k]
				}
				text += fmt.Sprintf(" %-*s", columns-1, line)
			}
			out.WriteString(strings.TrimRight(text, " ") + "\n")
		}
		out.WriteString("\n")
	}
	return out.String()
}
