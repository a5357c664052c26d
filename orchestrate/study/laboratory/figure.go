package laboratory

import (
	"maps"
	"math"
	"slices"

	"gyre/internal/figure"
	"gyre/internal/table"
)

// Figure draws the bias of all estimators in all games, and that of some in the chain with a stop action over what it
// depends on.
func Figure(reports []Report) figure.Figure {
	f := figure.Figure{Name: "estimators", Title: "Bias of advantage estimators", Columns: 3, Width: 3.1, Height: 2.6,
		Caption: "In % of the true gradient, beside a common factor; below: in the game stop"}
	f.Panels = []figure.Panel{tiles(reports),
		curves(reports, "over group size", "episodes of a group", map[int]string{2: "groups of 2", 4: "",
			8: "groups of 8"}),
		curves(reports, "over length", "turns at most", map[int]string{2: "2 turns", 3: "", 5: "5 turns"}),
		curves(reports, "over age", "updates between drawing and learning", map[int]string{0: "", 1: "1 update old",
			2: "2 updates old", 4: "4 updates old", 8: "8 updates old"})}
	return f
}

// tiles are the estimators from the top down, darker with more bias.
func tiles(reports []Report) figure.Panel {
	p := figure.Panel{Title: "by game", Wide: true}
	m := figure.Mark{Kind: figure.Tiles}
	for x, g := range Games() {
		p.X.Names = append(p.X.Names, g.Name)
		for i, r := range reports {
			y := len(reports) - 1 - i
			row := r.find(g.Name, "")
			m.Add(float64(x), float64(y))
			// Bias that is sure has a colour, from a tenth of a percent on.
			m.Z = append(m.Z, math.Log10(max(100*row.Result.Bias.Low, 0.1)))
			m.Text = append(m.Text, biasOf(row).(table.Cell).Text)
		}
	}
	for i := range reports {
		p.Y.Names = append(p.Y.Names, reports[len(reports)-1-i].Name)
	}
	p.Add(m)
	return p
}

// followed are drawn as curves, which more would hide.
var followed = []string{"gae", "grpo", "gigpo", "mt_grpo", "turn_grpo", "turn_rloo"}

func curves(reports []Report, title, over string, conditions map[int]string) figure.Panel {
	p := figure.Panel{Title: title, X: figure.Axis{Label: over, Integer: true}, Y: figure.Axis{Label: "bias, %"}}
	for i, name := range followed {
		m := figure.Mark{Label: name, Color: figure.Color(i)}
		at := slices.IndexFunc(reports, func(r Report) bool { return r.Name == name })
		for _, x := range slices.Sorted(maps.Keys(conditions)) {
			if at >= 0 {
				b := reports[at].find("stop", conditions[x]).Result.Bias
				m.AddInterval(float64(x), 100*b.Value, 100*b.Low, 100*b.High)
			}
		}
		if at >= 0 {
			p.Add(m)
		}
	}
	return p
}
