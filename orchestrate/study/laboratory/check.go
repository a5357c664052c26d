package laboratory

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/advantage"
)

// Options say how much is measured.
type Options struct {
	Size    int // of groups
	Samples int // batches: listed where they are no more, drawn elsewhere
	Seed    uint64
}

// usual is the number of groups in a batch. Estimators that compare groups are measured on as few as they need.
func usual(estimator string) int {
	switch estimator {
	case "brpo":
		return 2
	case "james_stein":
		return 3
	}
	return 1
}

// plain is how an estimator is claimed to be unbiased, if it is.
func plain(estimator string, o Options) Setup {
	return Setup{Estimator: estimator, Groups: usual(estimator), Size: o.Size, Discount: 1, Lambda: 1,
		Aggregation: "seq-mean-token-sum"}
}

// Row is one measurement.
type Row struct {
	Game      Game
	Condition string // what differs from plain; "" = nothing
	Result    Result
}

// condition is a change to plain in one game.
type condition struct {
	name   string
	game   Game
	change func(s *Setup)
}

// Linear is the condition in which nothing is divided or whitened.
const Linear = "not divided or whitened"

// conditions are those in which an estimator is measured: each game as it is, and what it is sensitive to in the chain
// with a stop action.
func conditions(e advantage.Estimator) (all []condition) {
	needs := config.Algorithm{Advantage: e.Name}
	for _, g := range Games() {
		all = append(all, condition{"", g, func(*Setup) {}})
		if e.Whitens || needs.Divides() { // for the others it would be the same once more
			all = append(all, condition{Linear, g, func(s *Setup) { s.Linear = true }})
		}
	}
	add := func(name string, turns int, change func(s *Setup)) {
		all = append(all, condition{name, StopChain(turns), change})
	}
	add("groups of 2", 3, func(s *Setup) { s.Size = 2 })
	add("groups of 8", 3, func(s *Setup) { s.Size = 8 })
	add("2 turns", 2, func(*Setup) {})
	add("5 turns", 5, func(*Setup) {})
	add("discount 0.9", 3, func(s *Setup) { s.Discount = 0.9 })
	if needs.UsesCritic() {
		add("critic of zeros", 3, func(s *Setup) { s.Blind = true })
		add("critic of zeros, λ 0.9", 3, func(s *Setup) { s.Blind, s.Lambda = true, 0.9 })
	}
	for _, aggregation := range []string{"token-mean", "seq-mean-token-mean"} {
		add(aggregation, 3, func(s *Setup) { s.Aggregation = aggregation })
	}
	for _, age := range []int{1, 2, 4, 8} {
		name := fmt.Sprintf("%d updates old", age)
		if age == 1 {
			name = "1 update old"
		}
		add(name, 3, func(s *Setup) { s.Age = age })
	}
	for _, level := range []string{"token", "sequence"} {
		add("4 updates old, ratio by "+level, 3, func(s *Setup) { s.Age, s.Ratio = 4, level })
	}
	return all
}

// Report is what was measured of an estimator.
type Report struct {
	advantage.Estimator
	Rows []Row
}

// Check measures estimators, two at a time on two cores.
func Check(ctx context.Context, estimators []advantage.Estimator, o Options) ([]Report, error) {
	reports := make([]Report, len(estimators))
	slots, working := make(chan struct{}, runtime.GOMAXPROCS(0)), sync.WaitGroup{}
	for i, e := range estimators {
		slots <- struct{}{}
		working.Go(func() { // ends when the estimator is measured
			reports[i] = check(ctx, e, o)
			<-slots
		})
	}
	working.Wait()
	return reports, context.Cause(ctx)
}

func check(ctx context.Context, e advantage.Estimator, o Options) Report {
	out := Report{Estimator: e}
	for _, c := range conditions(e) {
		if ctx.Err() != nil {
			break
		}
		s := plain(e.Name, o)
		c.change(&s)
		out.Rows = append(out.Rows, Row{c.game, c.name, Measure(c.game, s, o.Samples, o.Seed)})
	}
	return out
}

// find is the row of a game and a condition.
func (r Report) find(game, condition string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.Game.Name == game && row.Condition == condition })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// exactly is how far from 0 what is 0 may be: rounding.
const exactly = 1e-9

// Broken says in which way the measurements contradict what the estimator claims; "" where they do not. What was drawn
// at random shows that there is a bias, never that there is none: that takes most of the games listed.
func (r Report) Broken() string {
	return cmp.Or(r.broken("", r.Claim.Whole), r.broken(Linear, r.Claim.Linear))
}

func (r Report) broken(condition string, claim advantage.Property) string {
	most, listed := 0.0, 0
	for _, row := range r.Rows {
		m := row.Result
		if row.Condition != condition {
			continue
		}
		if most = max(most, m.Bias.Low); !m.Exact {
			continue
		}
		listed++
		switch {
		case claim == advantage.Biased:
		case !(m.Bias.Value < exactly), m.Scale <= 0:
			return describe(row, claim)
		case claim == advantage.Unbiased && !(m.Scale > 1-exactly && m.Scale < 1+exactly):
			return describe(row, claim)
		}
	}
	if claim == advantage.Biased && 2*listed > len(Games()) && most < 1e-3 {
		return "claims to be biased" + in(condition) + ", but is not in any game"
	}
	return ""
}
