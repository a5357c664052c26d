package bandit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// options are the settings of the bandit of professions.
type options struct {
	Split string `option:"split" oneof:"train,test" doc:"which pairs of professions"`
	payments
	Arms []string `option:"arms" doc:"pairs of your own, each \"Safe/Risky\", instead of the split's"`
}

// pairs of (safe, risky) professions.
var pairs = map[string][]string{
	"train": {
		"Teacher/Trader", "Nurse/StartupFounder", "Librarian/Investor", "Accountant/StockBroker",
		"Engineer/RealEstateAgent",
		"Pharmacist/Musician", "Clerk/Freelancer", "Technician/Youtuber", "Planner/Artist", "Postman/Pilot",
		"Banker/VentureCapitalist", "Gardener/Cryptominer",
	},
	"test": {
		"Receptionist/Explorer", "Archivist/Filmmaker", "Bookkeeper/Consultant", "SocialWorker/Photographer",
		"Mechanic/GameDesigner", "Secretary/Entrepreneur", "Cashier/DataScientist", "CivilServant/StartupAccelerator",
	},
}

// machine makes the bandit of professions.
func (o *options) machine() (*machine, error) {
	list := pairs[o.Split]
	if o.Arms != nil {
		list = o.Arms
	}
	var problems []error
	if len(list) == 0 {
		problems = append(problems, errors.New("option arms: expected at least one pair"))
	}
	var names [][2]string
	for _, pair := range list {
		safe, risky, _ := strings.Cut(pair, "/")
		names = append(names, [2]string{strings.TrimSpace(safe), strings.TrimSpace(risky)})
		if !different(names[len(names)-1]) {
			problems = append(problems, fmt.Errorf("option arms: expected two different names such as "+
				"\"Teacher/Trader\", got %q", pair))
		}
	}
	instruction := "Each arm is named after a profession and pays in the manner of that profession: what its name " +
		"stands for is your only hint. Choose the arm that you expect to pay more on average and answer with its name."
	return o.machineOf("risky_arm", 0, instruction, func(rng *rand.Rand) [2]string {
		return names[rng.IntN(len(names))]
	}), errors.Join(problems...)
}

// pair are the settings of the two arms of RAGEN's first generation. Both pay about a normal distribution; the
// risky one's has a second, higher peak.
type pair struct {
	Low  string `option:"low_risk_name,lo_arm_name" doc:"name of the safe arm"`
	High string `option:"high_risk_name,hi_arm_name" doc:"name of the risky arm"`
	payments
	Scatter float64 `option:"std" range:"[0,)" doc:"standard deviation of every payment about its mean"`
}

func (o *pair) machine() (*machine, error) {
	names := [2]string{strings.TrimSpace(o.Low), strings.TrimSpace(o.High)}
	if !different(names) {
		return nil, fmt.Errorf("options low_risk_name and high_risk_name: expected two different names, got %q and %q",
			o.Low, o.High)
	}
	instruction := "Each pays a different amount on average, and their names are your only hint. Answer with the " +
		"name of the arm that you expect to pay more."
	return o.machineOf("high_arm", o.Scatter, instruction, func(*rand.Rand) [2]string { return names }), nil
}

func different(names [2]string) bool {
	return names[0] != "" && names[1] != "" && !strings.EqualFold(names[0], names[1])
}

// payments are those of two arms, of which the risky one is the better.
type payments struct {
	Safe float64 `option:"lo_score,lo_arm_score" doc:"mean payment of the safe arm"`
	Lose float64 `option:"hi_loscore,hi_arm_loscore" doc:"mean payment of the risky arm when it loses"`
	Win  float64 `option:"hi_hiscore,hi_arm_hiscore" doc:"mean payment of the risky arm when it wins"`
	Prob float64 `option:"prob,hi_arm_hiscore_prob" range:"[0,1]" doc:"probability that the risky arm wins"`
}

// machineOf is one of a single pull. scatter is the standard deviation about the means; name gives the names of the
// safe arm and of the risky one.
func (p payments) machineOf(info string, scatter float64, hint string, name func(*rand.Rand) [2]string) *machine {
	about := func(mean float64, luck *rand.Rand) float64 {
		if scatter > 0 {
			mean += scatter * luck.NormFloat64()
		}
		return mean
	}
	safe := func(luck *rand.Rand) float64 { return about(p.Safe, luck) }
	risky := func(luck *rand.Rand) float64 {
		if luck.Float64() < p.Prob {
			return about(p.Win, luck)
		}
		return about(p.Lose, luck)
	}
	return &machine{
		rules: "You stand before a slot machine with two arms and pull one of them once. " + hint,
		pulls: 1, info: info,
		deal: func(rng *rand.Rand) []arm {
			names := name(rng)
			arms := []arm{{name: names[0], pay: safe}, {name: names[1], best: true, pay: risky}}
			if rng.IntN(2) == 1 {
				slices.Reverse(arms)
			}
			return arms
		},
	}
}
