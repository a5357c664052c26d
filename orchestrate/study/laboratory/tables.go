package laboratory

import (
	"fmt"
	"math"

	"gyre/internal/table"
	"gyre/orchestrate/loop/advantage"
)

func in(condition string) string {
	if condition == "" {
		return ""
	}
	return " where it is " + condition
}

func describe(row Row, claim advantage.Property) string {
	return fmt.Sprintf("claims to be %s%s, but in the game %s its mean is %.4g times the true gradient, and %.2g of "+
		"that beside it", claim, in(row.Condition), row.Game.Name, row.Result.Scale, row.Result.Bias.Value)
}

// biasOf is a bias in percent. What was measured on samples has a ~ before it, or is said to be below the upper end of
// its interval where that reaches 0.
func biasOf(row *Row) any {
	if row == nil {
		return nil
	}
	b := row.Result.Bias
	c := table.Between(b)
	percent := func(share float64) string { return fmt.Sprintf("%.*f", digits(100*share), 100*share) }
	switch {
	case row.Result.Exact && b.Value < exactly:
		c.Text = "0"
	case row.Result.Exact:
		c.Text = percent(b.Value)
	case b.Low <= 0:
		c.Text = "<" + percent(max(b.High, 0.001))
	default:
		c.Text = "~" + percent(b.Value)
	}
	return c
}

// digits behind the point: one below 10, as there is less in more.
func digits(percent float64) int {
	if math.Abs(percent) < 9.95 {
		return 1
	}
	return 0
}

// sensitivities are the columns of ByCondition.
var sensitivities = []struct{ head, condition string }{
	{"n 8", "groups of 8"}, {"5 turns", "5 turns"}, {"γ .9", "discount 0.9"}, {"λ .9", "critic of zeros, λ 0.9"},
	{"token", "token-mean"}, {"seq", "seq-mean-token-mean"}, {"old", "4 updates old"},
	{"ratio", "4 updates old, ratio by sequence"},
}

// ByGame says how biased each estimator is in each game.
func ByGame(reports []Report) *table.Table {
	t := table.New("estimator", "claim")
	for _, g := range Games() {
		t.Columns = append(t.Columns, table.Column{Name: g.Name})
	}
	for _, r := range reports {
		cells := []any{r.Name, string(r.Claim.Whole)}
		for _, g := range Games() {
			cells = append(cells, biasOf(r.find(g.Name, "")))
		}
		t.Add(cells...)
	}
	return t
}

// ByCondition says how noisy each estimator is in the chain with a stop action, and what its bias becomes there.
func ByCondition(reports []Report) *table.Table {
	t := table.New("estimator")
	t.Columns = append(t.Columns, table.Column{Name: "noise", Format: "%.3g"})
	for _, s := range sensitivities {
		t.Columns = append(t.Columns, table.Column{Name: s.head})
	}
	for _, r := range reports {
		cells := []any{r.Name, r.find("stop", "").Result.Variance}
		for _, s := range sensitivities {
			cells = append(cells, biasOf(r.find("stop", s.condition)))
		}
		t.Add(cells...)
	}
	return t
}

// Every is each measurement as a row.
func Every(reports []Report) *table.Table {
	t := table.New("estimator", "game", "condition")
	t.Columns = append(t.Columns, table.Column{Name: "bias", Head: "bias, %", Low: "bias_low", High: "bias_high"},
		table.Column{Name: "scale", Format: "%.3g"}, table.Column{Name: "cosine", Format: "%.4f"},
		table.Column{Name: "variance", Head: "noise", Format: "%.3g"},
		table.Column{Name: "exact", Hidden: true}, table.Column{Name: "batches"})
	t.Columns[0].Hidden = len(reports) == 1
	for _, r := range reports {
		for _, row := range r.Rows {
			m := row.Result
			exact, how := 0, table.Cell{Value: m.Batches, Text: fmt.Sprintf("%d drawn", m.Batches)}
			if m.Exact {
				exact, how.Text = 1, fmt.Sprintf("all %d", m.Batches)
			}
			t.Add(r.Name, row.Game.Name, row.Condition, biasOf(&row), m.Scale, m.Cosine, m.Variance, exact, how)
		}
	}
	return t
}

// Claims says what estimators claim, and why.
func Claims(reports []Report) *table.Table {
	t := table.New("estimator", "as it is", "raw", "why")
	for _, r := range reports {
		t.Add(r.Name, string(r.Claim.Whole), string(r.Claim.Linear), r.Claim.Why)
	}
	return t
}
