package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gyre/envs"
	"gyre/envs/sandbox"
	"gyre/internal/quote"
)

// The files in which a test script of Harbor says how it judges, in the order in which they count.
const (
	rewardJSON = "reward.json"
	rewardText = "reward.txt"
	reportJSON = "ctrf.json" // the report of the tests, https://ctrf.io
)

// outcome is how tests have judged.
type outcome struct {
	reward float64
	parts  map[string]float64
	share  float64 // of the tests, that passed
}

var errSilent = errors.New("the test script has said nothing of how it judges")

// judgeHarbor reads the files of a test script. A file of several rewards has one of the name reward, or the episode
// earns their mean.
func judgeHarbor(said sandbox.Said) (outcome, error) {
	o := outcome{parts: map[string]float64{}}
	if text := said.Found[rewardJSON]; text != "" {
		if err := json.Unmarshal([]byte(text), &o.parts); err != nil {
			return o, fmt.Errorf("%s: expected an object of numbers: %w", rewardJSON, quote.JSON(err))
		}
		total := 0.0
		for name, value := range o.parts {
			if err := errors.Join(envs.CheckName(name), envs.CheckReward(value)); err != nil {
				return o, fmt.Errorf("%s: %w", rewardJSON, err)
			}
			total += value
		}
		if len(o.parts) == 0 {
			return o, fmt.Errorf("%s: %w", rewardJSON, errSilent)
		}
		reward, named := o.parts["reward"]
		if !named {
			reward = total / float64(len(o.parts))
		}
		o.reward = reward
		delete(o.parts, "reward")
	} else {
		reward, err := strconv.ParseFloat(strings.TrimSpace(said.Found[rewardText]), 64)
		if said.Found[rewardText] == "" {
			return o, errSilent
		}
		if err != nil || envs.CheckReward(reward) != nil {
			return o, fmt.Errorf("%s: expected a number, got %s", rewardText, quote.Text(said.Found[rewardText], 60))
		}
		o.reward = reward
	}
	var report struct {
		Results struct {
			Summary struct{ Tests, Passed, Skipped float64 }
		}
	}
	share, named := o.parts["tests_passed"]
	switch json.Unmarshal([]byte(said.Found[reportJSON]), &report); {
	case named:
		o.share = share
	case report.Results.Summary.Tests > report.Results.Summary.Skipped:
		o.share = report.Results.Summary.Passed / (report.Results.Summary.Tests - report.Results.Summary.Skipped)
	default:
		o.share = math.Max(0, math.Min(1, o.reward))
	}
	delete(o.parts, "tests_passed")
	return o, nil
}

// result is a line of pytest's summary (-rA), which stands at the end of the output.
var result = regexp.MustCompile(`(?m)^(PASSED|FAILED|ERROR|XFAIL|XPASS) \S`)

// colour is what a terminal is told, which --color=yes and FORCE_COLOR put around every word of the summary.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// judgePytest counts what pytest says of each test; all have to pass.
func judgePytest(said sandbox.Said) (outcome, error) {
	output := colour.ReplaceAllString(said.Output, "")
	at := strings.LastIndex(output, "short test summary info")
	if at < 0 {
		return outcome{}, errSilent
	}
	passed, tests := 0.0, 0.0
	for _, line := range result.FindAllStringSubmatch(output[at:], -1) {
		tests++
		passed += envs.Indicator(line[1] == "PASSED" || line[1] == "XFAIL")
	}
	if tests == 0 {
		return outcome{}, errSilent
	}
	return outcome{reward: envs.Indicator(passed == tests), share: passed / tests}, nil
}

// components name the parts of an outcome.
func (o outcome) components() []envs.Component {
	list := []envs.Component{
		{Name: "tests_passed", Value: o.share}, {Name: "all_passed", Value: envs.Indicator(o.reward >= 1)},
	}
	for _, name := range slices.Sorted(maps.Keys(o.parts)) {
		if name != "all_passed" {
			list = append(list, envs.Component{Name: name, Value: o.parts[name]})
		}
	}
	return list
}
