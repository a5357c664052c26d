package episodes

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

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
	low, high := math.Inf(-1), math.Inf(1)
	if f.Low != nil {
		low = *f.Low
	}
	if f.High != nil {
		high = *f.High
	}
	return (f.Tag == "" || f.Tag == e.Tag) && (f.Stop == "" || f.Stop == e.Stop) && e.Score >= low && e.Score <= high &&
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
