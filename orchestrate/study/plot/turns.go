package plot

import (
	"fmt"
	"math"

	"gyre/internal/statistics"
)

// TurnCurve is how many episodes of a policy had succeeded by the end of each turn.
type TurnCurve struct {
	Label    string
	Episodes int
	Solved   []int
}

// Share that had succeeded by the end of a turn (from 1), with its 95 % interval (Wilson's).
func (c TurnCurve) Share(turn int) (value, low, high float64) {
	value = float64(c.Solved[turn-1]) / float64(c.Episodes)
	low, high = statistics.Wilson(value, c.Episodes, 0.95)
	return value, low, high
}

// SuccessByTurns draws the success of policies over the number of turns.
func SuccessByTurns(title string, curves []TurnCurve) Picture {
	chart := Chart{X: "turns", Y: "levels solved by then (%)", Within: [2]float64{0, 1}, Reference: math.NaN()}
	for _, c := range curves {
		l := Line{Label: c.Label}
		for i := range c.Solved {
			value, low, high := c.Share(i + 1)
			l.X, l.Y = append(l.X, float64(i+1)), append(l.Y, 100*value)
			l.Low, l.High = append(l.Low, 100*low), append(l.High, 100*high)
		}
		chart.Lines = append(chart.Lines, l)
	}
	caption := "bands: 95 % intervals"
	if len(curves) > 0 {
		caption += fmt.Sprintf(" over %d episodes", curves[0].Episodes)
	}
	return Lines("success_by_turns.png", title, caption, 1, chart)
}
