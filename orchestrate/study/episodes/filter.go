package episodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gyre/internal/nearest"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/rundir"
)

// Filter says which episodes are wanted. The zero value of a field wants all.
type Filter struct {
	Tag, Stop, Task, Text string
	Low, High             *float64 // of the score
	Shortest, Longest     int      // in tokens
	Groups, Episodes      []int
}

// Check refuses a stop reason that no episode has.
func (f Filter) Check() error {
	if f.Stop != "" && !slices.Contains(episode.Stops, f.Stop) {
		return fmt.Errorf("stop %q%s: expected one of %s", f.Stop, nearest.Hint(f.Stop, episode.Stops),
			strings.Join(episode.Stops, ", "))
	}
	return nil
}

// fits reports whether an entry is wanted, its text aside.
func (f Filter) fits(e Entry) bool {
	return (f.Tag == "" || f.Tag == e.Tag) && (f.Stop == "" || f.Stop == e.Stop) &&
		(f.Low == nil || e.Score >= *f.Low) && (f.High == nil || e.Score <= *f.High) &&
		e.Tokens >= f.Shortest && (f.Longest == 0 || e.Tokens <= f.Longest) &&
		(f.Task == "" || f.Task == e.Task) &&
		(f.Groups == nil || slices.Contains(f.Groups, e.Group)) &&
		(f.Episodes == nil || slices.Contains(f.Episodes, e.Episode))
}

// Select lists the wanted episodes of a file. Text is searched for in all that was said, without regard to case.
func (s *Source) Select(ctx context.Context, file rundir.Stored, f Filter) ([]Entry, error) {
	all, err := s.Index(file)
	if err != nil {
		return nil, err
	}
	out := []Entry{}
	for _, e := range all {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !f.fits(e) {
			continue
		}
		if f.Text != "" {
			said, err := s.says(e, f.Text)
			if err != nil {
				return nil, err
			}
			if !said {
				continue
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// Searched is what a search over steps has found.
type Searched struct {
	Episodes []Entry `json:"episodes"`
	Steps    int     `json:"steps"` // that were searched
	Next     int     `json:"next"`  // the step to go on with; -1: none is left
}

// Search lists the wanted episodes of a kind, the latest step first, from a step on (-1: the last). It ends behind the
// step with which it has found so many or has taken so long, and says where to go on; 0 sets no such end.
func (s *Source) Search(ctx context.Context, kind string, from int, f Filter, most int, patience time.Duration) (
	Searched, error) {
	begin, out := time.Now(), Searched{Episodes: []Entry{}, Next: -1}
	last, err := s.File(kind, -1) // the kind, where none is given
	if err != nil {
		return out, err
	}
	for _, file := range slices.Backward(s.Files()) {
		if file.Kind != last.Kind || from >= 0 && file.Step > from {
			continue
		}
		if out.Steps > 0 && (most > 0 && len(out.Episodes) >= most || patience > 0 && time.Since(begin) > patience) {
			out.Next = file.Step
			break
		}
		found, err := s.Select(ctx, file, f)
		if err != nil {
			return out, err
		}
		out.Episodes, out.Steps = append(out.Episodes, found...), out.Steps+1
	}
	return out, nil
}

// says reports whether a text occurs in an episode or in what it is called.
func (s *Source) says(e Entry, text string) (bool, error) {
	full, err := e.decode()
	if err != nil {
		return false, err
	}
	s.open()
	said := full.Label + "\n" + full.Gold
	if s.tokenizer != nil {
		said += "\n" + s.tokenizer.Decode(full.IDs, false)
	}
	return strings.Contains(strings.ToLower(said), strings.ToLower(text)), nil
}
