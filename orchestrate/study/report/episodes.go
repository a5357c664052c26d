package report

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/model/chat"
	"gyre/orchestrate/run/rundir"
)

// sample is an episode as people read it.
type sample struct {
	Title, About string
	Success      bool
	Turns        []turn
	Cut          string // what was left out
}

type turn struct{ Observation, Reply string }

// longest is how many characters of a turn's text, and how many turns of an episode, a page shows.
const (
	longest   = 4000
	mostTurns = 12
)

// samples picks episodes from the first and the last validation and the last training step: of each the one with the
// highest, the middle and the lowest score.
func samples(r *rundir.Run) (out []sample, note string, err error) {
	files := r.Rollouts()
	var chosen []rundir.Stored
	for _, kind := range []string{"validation", "step"} {
		of := slices.DeleteFunc(slices.Clone(files), func(f rundir.Stored) bool { return f.Kind != kind })
		if len(of) == 0 {
			continue
		}
		if kind == "validation" && len(of) > 1 {
			chosen = append(chosen, of[0])
		}
		chosen = append(chosen, of[len(of)-1])
	}
	if len(chosen) == 0 {
		return nil, "", nil
	}
	decode, note := decoder(r)
	for _, file := range chosen {
		episodes, err := episode.ReadFile(file.Path)
		if err != nil {
			return nil, "", err
		}
		slices.SortStableFunc(episodes, func(a, b *episode.Episode) int { return cmp.Compare(b.Score, a.Score) })
		picks := []int{0, len(episodes) / 2, len(episodes) - 1}
		for i, pick := range slices.Compact(picks) {
			what := "training step"
			if file.Kind == "validation" {
				what = "validation after step"
			}
			place := []string{"highest", "middle", "lowest"}[i]
			out = append(out, newSample(fmt.Sprintf("%s %d, %s score", what, file.Step, place), episodes[pick], decode))
		}
	}
	return out, note + "Blue: what the policy wrote.", nil
}

func newSample(title string, e *episode.Episode, decode func([]int32) string) sample {
	s := sample{Title: title, Success: e.Success, About: fmt.Sprintf("%s, group %d, score %.3g, %d tokens, ended: %s",
		e.Tag, e.Group, e.Score, len(e.IDs), e.Stop)}
	at := 0
	for i, t := range e.Turns {
		if i == mostTurns {
			s.Cut = fmt.Sprintf("%d further turns", len(e.Turns)-i)
			break
		}
		s.Turns = append(s.Turns, turn{shorten(decode(e.IDs[at:t.Reply])), shorten(decode(e.IDs[t.Reply:t.End]))})
		at = t.End
	}
	if len(e.Turns) == 0 {
		s.Turns = []turn{{Observation: shorten(decode(e.IDs))}}
	}
	return s
}

// decoder reads tokens with the run's own tokenizer, which its checkpoints and its model have; without one it lists
// them.
func decoder(r *rundir.Run) (decode func([]int32) string, note string) {
	var places []string
	for _, c := range slices.Backward(r.Checkpoints()) {
		places = append(places, filepath.Join(c.Path, "actor"))
	}
	if r.Config != nil {
		places = append(places, r.Config.Model.Path)
	}
	problem := errors.New("the run has neither checkpoints nor a readable configuration")
	for _, place := range places {
		tokenizer, err := chat.Load(place)
		if err == nil {
			return func(ids []int32) string { return tokenizer.Decode(ids, false) }, ""
		}
		problem = err
	}
	return func(ids []int32) string { return strings.Trim(fmt.Sprint(ids), "[]") },
		fmt.Sprintf("Tokens are shown by number: %v. ", problem)
}

func shorten(text string) string {
	runes := []rune(text)
	if len(runes) <= longest {
		return text
	}
	return string(runes[:longest]) + fmt.Sprintf(" … (%d characters more)", len(runes)-longest)
}
