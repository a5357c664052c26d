package collapse

import (
	"testing"

	"gyre/orchestrate/config"
)

var stopRules = config.EarlyStop{SpreadFraction: 0.1, SpreadWindow: 10, LowSuccessCount: 5, LowSuccess: 0.01,
	EmptySteps: 5}

func TestRewardsThatDifferTooLittleStopAtStepTwenty(t *testing.T) {
	var e EarlyStop
	for step := 1; step <= 20; step++ {
		std := 2.0
		if step > 10 {
			std = 0.19
		}
		stop := e.RewardStd(std, stopRules)
		if (stop != nil) != (step == 20) {
			t.Fatalf("step %d: stop = %v", step, stop)
		}
	}
}

func TestOneHealthyStepInTheWindowKeepsTheRunAlive(t *testing.T) {
	var e EarlyStop
	for step := 1; step <= 24; step++ {
		std := 2.0
		if step > 10 {
			std = 0.1
		}
		if step == 15 {
			std = 0.2 // exactly the threshold is not below it
		}
		if stop := e.RewardStd(std, stopRules); stop != nil {
			t.Fatalf("step %d stopped: %v", step, stop)
		}
	}
	if e.RewardStd(0.1, stopRules) == nil {
		t.Fatal("step 25 has ten low steps behind it and must stop")
	}
}

func TestLowValidationSuccess(t *testing.T) {
	var e EarlyStop
	low := map[string]float64{"val-env/sokoban/success": 0.0, "val-env/sokoban/num_actions": 0}
	for i := 1; i <= 4; i++ {
		if stop := e.Validated(low, stopRules); stop != nil {
			t.Fatalf("validation %d: %v", i, stop)
		}
	}
	if stop := e.Validated(map[string]float64{"val-env/sokoban/success": 0.02}, stopRules); stop != nil {
		t.Fatal(stop)
	}
	for i := 1; i <= 5; i++ {
		stop := e.Validated(low, stopRules)
		if (stop != nil) != (i == 5) {
			t.Fatalf("after the reset, validation %d: %v", i, stop)
		}
	}
}

func TestEmptySelections(t *testing.T) {
	var e EarlyStop
	for i := 1; i <= 4; i++ {
		if stop := e.Selected(true, stopRules); stop != nil {
			t.Fatal(stop)
		}
	}
	e.Selected(false, stopRules)
	for i := 1; i <= 5; i++ {
		if stop := e.Selected(true, stopRules); (stop != nil) != (i == 5) {
			t.Fatalf("empty step %d: %v", i, stop)
		}
	}
}
