package bandit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"gyre/envs"
)

// options are the settings of the bandit of professions.
type options struct {
	Split    string   `option:"split" oneof:"train,test" doc:"which pairs of professions"`
	Safe     float64  `option:"lo_score,lo_arm_score" doc:"reward of the safe arm"`
	RiskyLow float64  `option:"hi_loscore,hi_arm_loscore" doc:"reward of the risky arm when it loses"`
	RiskyWin float64  `option:"hi_hiscore,hi_arm_hiscore" doc:"reward of the risky arm when it wins"`
	Prob     float64  `option:"prob,hi_arm_hiscore_prob" range:"[0,1]" doc:"probability that the risky arm wins"`
	Arms     []string `option:"arms" doc:"pairs of your own, each \"Safe/Risky\", instead of the split's"`
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

// list returns the pairs to draw from.
func (o *options) list() ([][2]string, error) {
	var problems []error
	list := pairs[o.Split]
	if o.Arms != nil {
		list = o.Arms
	}
	if len(list) == 0 {
		problems = append(problems, errors.New("option arms: expected at least one pair"))
	}
	var arms [][2]string
	for _, pair := range list {
		safe, risky, ok := strings.Cut(pair, "/")
		safe, risky = strings.TrimSpace(safe), strings.TrimSpace(risky)
		if !ok || safe == "" || risky == "" || strings.EqualFold(safe, risky) {
			problems = append(problems, fmt.Errorf("option arms: expected two different names such as "+
				"\"Teacher/Trader\", got %q", pair))
		}
		arms = append(arms, [2]string{safe, risky})
	}
	return arms, errors.Join(problems...)
}

// machine makes the bandit of professions.
func (o *options) machine() (envs.Env, error) {
	pairs, err := o.list()
	if err != nil {
		return nil, err
	}
	return twoArmed("risky_arm", "Each arm is named after a profession and pays in the manner of that profession: what its "+
		"name stands for is your only hint. Choose the arm that you expect to pay more on average and answer with its "+
		"name.",
		func(rng *rand.Rand) (string, string) {
			pair := pairs[rng.IntN(len(pairs))]
			return pair[0], pair[1]
		},
		func(*rand.Rand) float64 { return o.Safe },
		func(luck *rand.Rand) float64 {
			if luck.Float64() < o.Prob {
				return o.RiskyWin
			}
			return o.RiskyLow
		}), nil
}

// twoArmed is a machine of one pull whose risky arm is the better one. name gives the names of the safe arm and of the
// risky one.
func twoArmed(info, hint string, name func(*rand.Rand) (low, high string),
	safe, risky func(luck *rand.Rand) float64) *machine {
	return &machine{
		rules: "You stand before a slot machine with two arms and pull one of them once. " + hint,
		pulls: 1, info: info,
		deal: func(rng *rand.Rand) []arm {
			low, high := name(rng)
			arms := []arm{{name: low, pay: safe}, {name: high, best: true, pay: risky}}
			if rng.IntN(2) == 1 {
				slices.Reverse(arms)
			}
			return arms
		},
	}
}

func init() {
	spec := func(tag, split, doc string) envs.Spec {
		return envs.Spec{
			Tag: tag, Type: "bandit", Doc: doc, MaxActions: 1, MaxReplyWords: 100,
			NewOptions: func() any { return &options{Split: split, Safe: 0.1, RiskyWin: 1, Prob: 0.25} },
			New:        func(o any) (envs.Env, error) { return o.(*options).machine() },
		}
	}
	envs.Register(
		spec("Bandit", "train", "two arms named after professions, one pull"),
		spec("BanditTest", "test", "the same with professions kept for validation"),
	)
}
