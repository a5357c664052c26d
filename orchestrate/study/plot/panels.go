package plot

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

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

// namesOf are the titles of those terms that were computed, or of those that were not.
func namesOf(of []term, list []bucket, present bool) (titles []string) {
	for _, t := range of {
		if computed(list, t.name) == present {
			titles = append(titles, t.title)
		}
	}
	return titles
}

// regulariserTitle names those of the regularisers that were computed; "" = none.
func regulariserTitle(list []bucket) string {
	if titles := namesOf(regularisers, list, true); len(titles) > 0 {
		return strings.Join(titles, " + ") + " gradient"
	}
	return ""
}

// notComputed names the terms whose gradients were not computed, for a caption.
func notComputed(list []bucket) string {
	if titles := namesOf(terms, list, false); len(titles) > 0 {
		return "not computed: " + strings.Join(titles, ", ")
	}
	return ""
}

// axis has the buckets as places. Below their names stand the range of their groups' reward standard deviations and
// the number of groups: the buckets of two analyses have the same names and other ranges.
func axis(list []bucket) figure.Axis {
	a := figure.Axis{Names: []string{}}
	for _, b := range list {
		a.Names = append(a.Names, b.label)
	}
	var lines []string
	for _, line := range []struct{ what, name string }{{"std from", "reward_std_min"}, {"to", "reward_std_max"},
		{"mean std", "reward_std_mean"}, {"groups", "group_rv_count"}} {
		if !computed(list, line.name) || line.what == "mean std" && computed(list, "reward_std_min") {
			continue
		}
		lines = append(lines, line.what)
		for i, b := range list {
			text := ""
			if v := b.value(line.name); line.what == "groups" && v > 0 {
				text = strconv.Itoa(int(v))
			} else if !math.IsNaN(v) {
				text = figure.Short(v, 2)
			}
			a.Names[i] += "\n" + text
		}
	}
	if len(lines) > 0 {
		a.Label = "below each bucket: " + strings.Join(lines, ", ")
	}
	return a
}

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
		if i == len(shown)-1 {
			estimate.Label = intervals
		}
		reasons := figure.Mark{Kind: figure.Words, Color: figure.Grey, Upwards: true}
		for x, b := range list {
			s := b.strength(t.name)
			at := float64(x) + 2*dodge*(float64(i)-float64(len(shown)-1)/2)
			measured.Add(at, s.measured)
			estimate.AddInterval(at, s.signal, s.low, s.high)
			if b.exact && i == 0 && s.why != "" {
				reasons.Add(float64(x), 0)
				reasons.Text = append(reasons.Text, s.why)
			}
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
		norm, exact := b.together(two[0].name, two[1].name)
		if n := b.value("group_rv_count"); b.exact && n > 0 {
			norm /= n
		}
		if m.Add(float64(x), norm); !exact && !math.IsNaN(norm) {
			m.Label = "sum of the norms"
		}
	}
	return m
}

// stdMarks have every bucket's mean reward standard deviation with bars from the smallest to the largest group.
func stdMarks(list []bucket) figure.Mark {
	m := figure.Mark{Kind: figure.Dots, Color: figure.Vermilion, Width: 2.6}
	for x, b := range list {
		m.AddInterval(float64(x), b.value("reward_std_mean"), b.value("reward_std_min"), b.value("reward_std_max"))
	}
	return m
}

// stdBoxes has a box plot per bucket of its groups' reward standard deviations; where they were not logged, the mean
// with its range.
func stdBoxes(list []bucket) figure.Panel {
	boxes, means := figure.Mark{Kind: figure.Boxes, Color: figure.Vermilion}, stdMarks(list)
	means.Label = "mean, smallest and largest group"
	for x, b := range list {
		if stds := b.stds(); stds != nil {
			boxes.Groups = append(boxes.Groups, stds)
			boxes.Add(float64(x), stds[0])
			means.Y[x], means.Low[x], means.High[x] = math.NaN(), math.NaN(), math.NaN()
		}
	}
	return figure.Panel{Title: "Reward std", X: axis(list), Y: figure.Axis{Label: stdLabel, Low: 0, High: 1e-6},
		Marks: []figure.Mark{boxes, means}}
}

// bars is a panel of one metric per bucket, with values written above bars and their error bars, and "all" in grey. A
// bucket without the metric has no bar.
func bars(list []bucket, title, name, unit string, paint color.NRGBA) figure.Panel {
	p := figure.Panel{Title: title, X: axis(list), Y: figure.Axis{Label: unit}}
	if !computed(list, name) {
		return p
	}
	largest := 0.0
	for _, b := range list {
		if v := b.value(name); !math.IsNaN(v) {
			largest = math.Max(largest, math.Abs(v))
		}
	}
	own, all := figure.Mark{Kind: figure.Bars, Color: paint}, figure.Mark{Kind: figure.Bars, Color: figure.Grey}
	for x, b := range list {
		m, v, text := &own, b.value(name), "n/a"
		if b.name == "all" {
			m = &all
		}
		if !math.IsNaN(v) {
			text = decimal(v, largest)
		}
		low, high := math.NaN(), math.NaN()
		if name == "reward_std_mean" {
			low, high = b.value("reward_std_min"), b.value("reward_std_max")
		}
		m.AddInterval(float64(x), v, low, high)
		m.Text = append(m.Text, text)
	}
	p.Add(own, all)
	return p
}

// decimal writes v with as many decimals as give the largest value of its panel three digits.
func decimal(v, largest float64) string {
	factor, _ := figure.Unit(largest) // that of the axis
	decimals := 2
	if largest > 0 {
		decimals = max(0, 2-int(math.Floor(math.Log10(largest*factor)+1e-9)))
	}
	return figure.Typographic(strconv.FormatFloat(v*factor, 'f', decimals, 64))
}
