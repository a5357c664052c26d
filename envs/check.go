package envs

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"gyre/internal/quote"
)

// The limits of what an environment may say.
const (
	// LargestReward is the largest size of a reward, a reward component and what an episode earns in all: its square
	// is far from the limits of float64, and advantages, which are float32, hold it.
	LargestReward = 1e30

	longestName  = 100 // of a component or a metric, in bytes
	mostNames    = 256 // components, and metrics, of one action
	mostStops    = 16
	longestStop  = 200 // bytes
	longestShown = 60  // of a name in an error
)

// CheckName tells whether a reward component or a metric may have a name: it becomes part of metric names and of
// paths in archives.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("a name is empty")
	case len(name) > longestName:
		return fmt.Errorf("the name %s is longer than %d bytes", quote.Text(name, longestShown), longestName)
	case !utf8.ValidString(name) || strings.ContainsAny(name, `/\`) || name[0] == '.' ||
		name != strings.TrimSpace(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the name %s: expected printable characters without / and \\, not beginning with a dot",
			quote.Text(name, longestShown))
	}
	return nil
}

// CheckReward tells whether training can use a number as a reward.
func CheckReward(value float64) error {
	if !(math.Abs(value) <= LargestReward) { // NaN is neither
		return fmt.Errorf("%v: expected a number of at most 1e+30 in size", value)
	}
	return nil
}

// Check tells what is wrong with the result of an action.
func (r Result) Check() error {
	if err := CheckReward(r.Reward); err != nil {
		return fmt.Errorf("the reward is %w", err)
	}
	if len(r.Components) > mostNames || len(r.Info) > mostNames {
		return fmt.Errorf("%d reward components and %d numbers of info, expected at most %d of each",
			len(r.Components), len(r.Info), mostNames)
	}
	for _, c := range r.Components {
		if err := CheckName(c.Name); err != nil {
			return fmt.Errorf("a reward component: %w", err)
		}
		if err := CheckReward(c.Value); err != nil {
			return fmt.Errorf("reward component %q is %w", c.Name, err)
		}
		if !slices.Contains([]string{"", PlaceLast, PlaceMean, PlaceSpread}, c.Placement) {
			return fmt.Errorf("reward component %q has placement %s, expected last, mean or spread", c.Name,
				quote.Text(c.Placement, longestShown))
		}
	}
	for name := range r.Info {
		if err := CheckName(name); err != nil {
			return fmt.Errorf("info: %w", err)
		}
	}
	return nil
}

// Check tells what is wrong with the start of an episode.
func (s Start) Check() error {
	if len(s.StopStrings) > mostStops {
		return fmt.Errorf("%d stop strings, expected at most %d", len(s.StopStrings), mostStops)
	}
	for _, stop := range s.StopStrings {
		if stop == "" || len(stop) > longestStop {
			return fmt.Errorf("the stop string %s: expected 1 to %d bytes", quote.Text(stop, longestShown), longestStop)
		}
	}
	for _, action := range s.Actions {
		if strings.TrimSpace(action) == "" {
			return errors.New("an action has no name")
		}
	}
	return nil
}
