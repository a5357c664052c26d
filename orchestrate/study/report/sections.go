package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"gyre/internal/table"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
	"gyre/orchestrate/run/rundir"
	"gyre/orchestrate/study/causes"
	"gyre/orchestrate/study/episodes"
	"gyre/orchestrate/study/plot"
)

// outcomes has a row per run. A success has the interval of the episodes that it is over: a peak over few is beside one
// over many.
func outcomes(runs []*rundir.Run, labels []string) *table.Table {
	t := table.New("run", "ended", "steps", "success before", "peak", "at step", "last",
		"episodes", "entropy", "reward std", "grad norm", "hours")
	for i := range t.Columns {
		t.Columns[i].Format = "%.3g"
	}
	for i, r := range runs {
		o := r.Outcome()
		var at, episodes any
		n := r.Episodes()
		if n > 0 {
			episodes = n
		}
		shown, measure := o.Course, table.Share
		if len(shown.Points) == 0 && len(o.Return.Points) > 0 { // nobody knows what a success is
			shown = o.Return
			measure = func(v float64, _ int) table.Cell { return table.Cell{Value: v, Text: fmt.Sprintf("return %.3g", v)} }
		}
		if len(shown.Points) > 0 {
			at = shown.PeakStep
		}
		t.Add(labels[i], describe(o), o.Steps, measure(shown.Baseline, n), measure(shown.Peak, n), at,
			measure(shown.Last, n), episodes, o.Entropy, o.Spread, o.GradNorm,
			table.Cell{Value: o.Total / 3600, Text: fmt.Sprintf("%.2f", o.Total/3600)})
	}
	return t
}

// validations has every validation's success by tag, with the 95 % interval where the number of episodes is known.
func validations(r *rundir.Run) *table.Table {
	t := table.New("step")
	const pattern = "val-env/*/success"
	keys, episodes := r.Keys(pattern), r.ValidationEpisodes()
	for _, key := range keys {
		t.Columns = append(t.Columns, table.Column{Name: rundir.Tag(pattern, key)})
	}
	for _, record := range r.Records {
		row, found := []any{record.Step}, false
		for _, key := range keys {
			if v, ok := rundir.Number(record, key); ok {
				found, row = true, append(row, table.Share(v, episodes[rundir.Tag(pattern, key)]))
			} else {
				row = append(row, nil)
			}
		}
		if found {
			t.Add(row...)
		}
	}
	return t
}

// suspected has what the detectors of package causes find, and says what they tested. Of a run without a history there
// is nothing to say.
func suspected(ctx context.Context, r *rundir.Run) (*table.Table, string, error) {
	h, err := causes.Read(ctx, r)
	switch {
	case errors.Is(err, causes.ErrNothing):
		return nil, "", nil
	case err != nil:
		return nil, "", err
	}
	found, tested := causes.Rank(h)
	t := causes.Table(r, found)
	for i := range t.Columns {
		t.Columns[i].Hidden = t.Columns[i].Name == "p"
	}
	return t, causes.Said(len(found), tested), nil
}

// final has every number and text of the last step.
func final(r *rundir.Run) *table.Table {
	t := table.New("metric", "value")
	last := r.Records[len(r.Records)-1]
	for _, key := range slices.Sorted(maps.Keys(last.Values)) {
		switch v := last.Values[key].(type) {
		case float64, string, bool:
			t.Add(key, v)
		}
	}
	return t
}

// analyses are the analysed steps of a run, and before and after them the analyses of its policies that stand beside
// it: folders RUN-analysis or RUN/analysis with an output of gyre analyze each.
func analyses(r *rundir.Run) (out []plot.Analysed, err error) {
	// the patterns are well-formed
	beside, _ := filepath.Glob(filepath.Join(filepath.Clean(r.Dir)+"-analysis", "*", metrics.File))
	within, _ := filepath.Glob(r.File("analysis", "*", metrics.File))
	add := func(r *rundir.Run, prefix string) {
		for _, step := range plot.AnalysedSteps(r, false) {
			a := plot.Step(r, step)
			a.Title = prefix + a.Title
			out = append(out, a)
		}
	}
	for _, path := range append(beside, within...) {
		probe, err := rundir.Read(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		add(probe, filepath.Base(filepath.Dir(path))+": ")
	}
	if add(r, ""); len(out) > 0 {
		out[len(out)-1].Open = true
	}
	return out, nil
}

// sample is an episode as people read it.
type sample struct {
	Title, About, Verdict string
	Turns                 []turn
	Cut                   string // what was left out
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
	source, err := episodes.Open(r.Dir, "")
	if err != nil {
		return nil, "", err
	}
	if problem := source.Problem(); problem != nil {
		note = fmt.Sprintf("Tokens are shown by number: %v. ", problem)
	}
	for _, file := range chosen {
		list, err := episode.ReadFile(file.Path)
		if err != nil {
			return nil, "", err
		}
		slices.SortStableFunc(list, func(a, b *episode.Episode) int { return cmp.Compare(b.Score, a.Score) })
		picks := []int{0, len(list) / 2, len(list) - 1}
		for i, pick := range slices.Compact(picks) {
			what := "training step"
			if file.Kind == "validation" {
				what = "validation after step"
			}
			place := []string{"highest", "middle", "lowest"}[i]
			out = append(out, newSample(fmt.Sprintf("%s %d, %s score", what, file.Step, place), list[pick],
				source.Decode))
		}
	}
	return out, note + "Blue: what the policy wrote.", nil
}

func newSample(title string, e *episode.Episode, decode func([]int32) string) sample {
	s := sample{Title: title, Verdict: episode.Verdict(e.Success, e.Unjudged), About: fmt.Sprintf(
		"%s, group %d, score %.3g, %d tokens, ended: %s", e.Tag, e.Group, e.Score, len(e.IDs), e.Stop)}
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

func shorten(text string) string {
	runes := []rune(text)
	if len(runes) <= longest {
		return text
	}
	return string(runes[:longest]) + fmt.Sprintf(" … (%d characters more)", len(runes)-longest)
}
