package collapse

import (
	"fmt"
	"sort"
	"strings"

	"gyre/orchestrate/config"
)

// EarlyStop watches for runs that have collapsed (RAGEN's three rules). Its state travels in the checkpoint, so that
// a resumed run stops where the uninterrupted one would have.
type EarlyStop struct {
	Baseline   []float64      `json:"baseline"`    // spreads of the first window of non-empty steps
	Window     []float64      `json:"window"`      // spreads of the latest window
	LowSuccess map[string]int `json:"low_success"` // consecutive low validations per metric
	Empty      int            `json:"empty"`       // consecutive empty selections
}

// StoppedEarly says which rule ended the run; its metric is set to 1 in the last line of metrics.jsonl.
type StoppedEarly struct {
	Metric string
	Reason string
}

func (s *StoppedEarly) Error() string { return "stopped early: " + s.Reason }

// Spread is told the mean group spread of a non-empty step, before filtering. The first SpreadWindow steps make the
// baseline; the run has collapsed when every one of the SpreadWindow latest later steps lies below SpreadFraction of
// it.
func (e *EarlyStop) Spread(spread float64, c config.EarlyStop) *StoppedEarly {
	if c.SpreadFraction <= 0 || c.SpreadWindow <= 0 {
		return nil
	}
	if len(e.Baseline) < c.SpreadWindow {
		e.Baseline = append(e.Baseline, spread)
		return nil
	}
	e.Window = append(e.Window, spread)
	if len(e.Window) > c.SpreadWindow {
		e.Window = e.Window[len(e.Window)-c.SpreadWindow:]
	}
	if len(e.Window) < c.SpreadWindow {
		return nil
	}
	base := 0.0
	for _, s := range e.Baseline {
		base += s / float64(len(e.Baseline))
	}
	for _, s := range e.Window {
		if s >= c.SpreadFraction*base {
			return nil
		}
	}
	return &StoppedEarly{
		Metric: "early_stopped/reward_variance_collapse",
		Reason: fmt.Sprintf("reward spread collapsed: below %g of the first %d steps' mean %.4g for %d steps in a "+
			"row (last %.4g)",
			c.SpreadFraction, c.SpreadWindow, base, c.SpreadWindow, spread),
	}
}

// Validated is told the metrics of a validation inside the loop; success rates are those whose name ends in /success.
func (e *EarlyStop) Validated(metrics map[string]float64, c config.EarlyStop) *StoppedEarly {
	if c.LowSuccessCount <= 0 {
		return nil
	}
	if e.LowSuccess == nil {
		e.LowSuccess = map[string]int{}
	}
	names := make([]string, 0, len(metrics))
	for name := range metrics {
		if strings.HasSuffix(name, "/success") && !strings.Contains(name, "non-zero") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		if metrics[name] >= c.LowSuccess {
			e.LowSuccess[name] = 0
			continue
		}
		e.LowSuccess[name]++
		if e.LowSuccess[name] >= c.LowSuccessCount {
			return &StoppedEarly{
				Metric: "early_stopped/low_validation_success",
				Reason: fmt.Sprintf("%s stayed below %g for %d validations in a row", name, c.LowSuccess,
					c.LowSuccessCount),
			}
		}
	}
	return nil
}

// Selected is told whether the filter kept nothing.
func (e *EarlyStop) Selected(empty bool, c config.EarlyStop) *StoppedEarly {
	if !empty {
		e.Empty = 0
		return nil
	}
	e.Empty++
	if c.EmptySteps > 0 && e.Empty >= c.EmptySteps {
		return &StoppedEarly{
			Metric: "early_stopped/empty_filtered_steps",
			Reason: fmt.Sprintf("the filter kept no group for %d steps in a row", e.Empty),
		}
	}
	return nil
}
