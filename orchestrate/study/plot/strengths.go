package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gyre/internal/figure"
)

// term is a part of the policy's loss that has a gradient of its own.
type term struct {
	name, title string
	color       color.NRGBA
}

// terms are in the order of figures.
var terms = []term{{"kl", "KL", figure.Green}, {"entropy", "Entropy", figure.Orange}, {"task", "Task", figure.Blue}}

// task is the gradient that figures show alone, regularisers those that they show together, as RAGEN does.
var task, regularisers = terms[2:], terms[:2]

const (
	stdLabel = "in-group reward std"
	dodge    = 0.16 // keeps the marks of several terms apart within a bucket's place
)

// strengthPanel shows, bucket beside bucket, how strong a group's gradient is: the measured norm as a ring, and the
// estimate without noise with its interval as a dot. Where an estimate or an interval is missing, the panel says why.
// With two terms there is a third ring: the norm of their sum. It is empty where none of the terms was computed.
func strengthPanel(list []bucket, title string, of []term, intervals string) figure.Panel {
	shown := slices.DeleteFunc(slices.Clone(of), func(t term) bool { return !computed(list, t.name) })
	unit := "gradient L2 norm"
	if len(list) > 0 && list[0].exact {
		unit = "gradient norm per group"
	}
	p := figure.Panel{Title: title, X: axis(list), Y: figure.Axis{Label: unit, Low: 0, High: 1e-12}}
	for i, t := range shown {
		measured, estimate := figure.Mark{Kind: figure.Rings, Color: t.color, Label: t.title},
			figure.Mark{Kind: figure.Dots, Color: t.color, Width: 2}
		if len(of) == 1 {
			measured.Label, estimate.Color = "measured, with noise", figure.Ink
		}
		reasons := figure.Mark{Kind: figure.Words, Color: figure.Grey, Upwards: true}
		for x, b := range list {
			s, ok := b.strength(t.name)
			if !ok {
				continue
			}
			at := float64(x) + 2*dodge*(float64(i)-float64(len(shown)-1)/2)
			measured.Add(at, s.measured)
			if s.hasSignal {
				estimate.AddInterval(at, s.signal, s.low, s.high)
			}
			if !s.hasIntervals {
				if n := len(estimate.X); s.hasSignal {
					estimate.Low[n-1], estimate.High[n-1] = math.NaN(), math.NaN()
				}
				if b.exact && i == 0 {
					reasons.Add(float64(x), 0)
					reasons.Text = append(reasons.Text, s.why)
				}
			}
		}
		if len(estimate.X) > 0 && i == len(shown)-1 {
			estimate.Label = intervals
		}
		p.Add(measured, estimate, reasons)
	}
	if len(shown) == 2 {
		p.Add(sumOf(list, shown))
	}
	return p
}

// sumOf is the norm of the sum of two terms' gradients, or the sum of their norms where the angle between them is not
// known.
func sumOf(list []bucket, two []term) figure.Mark {
	m := figure.Mark{Kind: figure.Rings, Color: figure.Purple, Label: "norm of the sum"}
	for x, b := range list {
		norm, exact, ok := b.together(two[0].name, two[1].name)
		if !ok {
			continue
		}
		if b.exact && b.groups() > 0 {
			norm /= b.groups()
		}
		if m.Add(float64(x), norm); !exact {
			m.Label = "sum of the norms"
		}
	}
	return m
}

// regulariserTitle names those of the regularisers that were computed; "" = none.
func regulariserTitle(list []bucket) (title string) {
	for _, t := range regularisers {
		if computed(list, t.name) {
			if title != "" {
				title += " + "
			}
			title += t.title
		}
	}
	if title != "" {
		title += " gradient"
	}
	return title
}

// notComputed names the terms whose gradients were not computed, for a caption.
func notComputed(list []bucket) (text string) {
	for _, t := range terms {
		if !computed(list, t.name) {
			if text != "" {
				text += ", "
			}
			text += t.title
		}
	}
	if text != "" {
		text = "not computed: " + text
	}
	return text
}

// intervalText explains the dots.
func intervalText(confidence float64, known bool) string {
	if !known {
		return "without noise, with its interval"
	}
	return fmt.Sprintf("without noise, %g%% interval", 100*confidence)
}

// caveat says how to read a figure's norms.
func caveat(profile string) string {
	if profile == "exact" {
		return "per group: a measured norm holds noise, which shrinks as 1/√groups: compare the estimates without noise"
	}
	return "norms as this procedure gives them: without intervals, and dependent on a bucket's size"
}

// stdIntervals has every bucket's mean reward standard deviation with bars from the smallest to the largest group.
func stdIntervals(list []bucket, title string) figure.Panel {
	m := figure.Mark{Kind: figure.Dots, Color: figure.Vermilion, Width: 2.6}
	for x, b := range list {
		if mean, low, high, ok := interval(b); ok {
			m.AddInterval(float64(x), mean, low, high)
		}
	}
	return figure.Panel{Title: title, X: axis(list), Y: figure.Axis{Label: stdLabel, Log: true},
		Marks: []figure.Mark{m}}
}

// stdBoxes has a box plot per bucket of its groups' reward standard deviations; where they were not logged, the mean
// with its range.
func stdBoxes(list []bucket) figure.Panel {
	boxes := figure.Mark{Kind: figure.Boxes, Color: figure.Vermilion}
	means := figure.Mark{Kind: figure.Dots, Color: figure.Vermilion, Width: 2.6,
		Label: "mean, smallest and largest group"}
	for x, b := range list {
		if len(b.stds) > 0 {
			boxes.Groups = append(boxes.Groups, b.stds)
			boxes.Add(float64(x), b.stds[0])
		} else if mean, low, high, ok := interval(b); ok {
			means.AddInterval(float64(x), mean, low, high)
		}
	}
	p := figure.Panel{Title: "Reward std", X: axis(list), Y: figure.Axis{Label: stdLabel, Low: 0, High: 1e-6},
		Marks: []figure.Mark{boxes}}
	if len(means.X) > 0 {
		p.Add(means)
	}
	return p
}

// interval returns the mean, smallest and largest reward standard deviation of a bucket's groups.
func interval(b bucket) (mean, low, high float64, ok bool) {
	mean, ok1 := b.get("reward_std_mean")
	low, ok2 := b.get("reward_std_min")
	high, ok3 := b.get("reward_std_max")
	return mean, low, high, ok1 && ok2 && ok3
}
