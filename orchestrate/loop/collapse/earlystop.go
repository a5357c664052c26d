package collapse

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gyre/orchestrate/config"
)

// EarlyStop watches for runs that have collapsed (RAGEN's three rules). Its state travels in the checkpoint, so that
// a resumed run stops where the uninterrupted one would have.
type EarlyStop struct {
	Baseline   []float64      `json:"baseline"`    // in-group reward standard deviations of the first window of steps
	Window     []float64      `json:"window"`      // those of the latest window
	LowSuccess map[string]int `json:"low_success"` // consecutive low validations per metric
	Empty      int            `json:"empty"`       // consecutive steps of which the filter kept nothing
}

// StoppedEarly says which rule ended the run; its metric is set to 1 in the last line of metrics.jsonl.
type StoppedEarly struct {
	Metric string
	Reason string
}

func (s *StoppedEarly) Error() string { return "stopped early: " + s.Reason }

// RewardStd takes the mean in-group reward standard deviation of a step before filtering; steps of which the filter
// keeps nothing do not count. The first SpreadWindow steps make the baseline; the run has collapsed when every one of
// the SpreadWindow latest later steps lies below SpreadFraction of it.
func (e *EarlyStop) RewardStd(std float64, c config.EarlyStop) *StoppedEarly {
	if c.SpreadFraction <= 0 {
		return nil
	}
	if len(e.Baseline) < c.SpreadWindow {
		e.Baseline = append(e.Baseline, std)
		return nil
	}
	e.Window = append(e.Window, std)
	e.Window = e.Window[max(len(e.Window)-c.SpreadWindow, 0):]
	base := 0.0
	for _, s := range e.Baseline {
		base += s / float64(len(e.Baseline))
	}
	if len(e.Window) < c.SpreadWindow || slices.Max(e.Window) >= c.SpreadFraction*base {
		return nil
	}
	return &StoppedEarly{"early_stopped/reward_variance_collapse",
		fmt.Sprintf("reward standard deviation collapsed: below %g of the first %d steps' mean %.4g for %d steps in a "+
			"row (last %.4g; early_stop.spread_fraction, early_stop.spread_window)", c.SpreadFraction, c.SpreadWindow, base, c.SpreadWindow, std)}
}

// Validated takes the metrics of a validation inside the loop; success rates are those whose name ends in /success.
func (e *EarlyStop) Validated(metrics map[string]float64, c config.EarlyStop) *StoppedEarly {
	if c.LowSuccessCount <= 0 {
		return nil
	}
	if e.LowSuccess == nil {
		e.LowSuccess = map[string]int{}
	}
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if !strings.HasSuffix(name, "/success") || strings.Contains(name, "non-zero") {
			continue
		}
		if metrics[name] >= c.LowSuccess {
			e.LowSuccess[name] = 0
			continue
		}
		if e.LowSuccess[name]++; e.LowSuccess[name] >= c.LowSuccessCount {
			return &StoppedEarly{"early_stopped/low_validation_success", fmt.Sprintf(
				"%s stayed below %g (early_stop.low_success) for %d validations in a row (early_stop.low_success_count)",
				name, c.LowSuccess, c.LowSuccessCount)}
		}
	}
	return nil
}

// Selected takes whether the filter kept nothing of a step.
func (e *EarlyStop) Selected(empty bool, c config.EarlyStop) *StoppedEarly {
	if !empty {
		e.Empty = 0
		return nil
	}
	if e.Empty++; c.EmptySteps <= 0 || e.Empty < c.EmptySteps {
		return nil
	}
	return &StoppedEarly{"early_stopped/empty_filtered_steps",
		fmt.Sprintf("the filter kept no group for %d steps in a row (early_stop.empty_steps)", e.Empty)}
}
