package filter

import (
	"fmt"
	"math"
)

// summary describes the members of one group by one quantity.
type summary struct{ std, mean, max, sum float64 }

// summarise takes the standard deviation with n - 1 in the denominator: NaN for one value.
func summarise(values []float64) summary {
	s := summary{max: math.Inf(-1)}
	for _, v := range values {
		s.sum += v
		s.max = max(s.max, v)
	}
	n := float64(len(values))
	s.mean = s.sum / n
	squares := 0.0
	for _, v := range values {
		squares += (v - s.mean) * (v - s.mean)
	}
	s.std = math.Sqrt(squares / (n - 1))
	return s
}

// metric returns the quantity behind a filter metric and how a group's score follows from its summary. The
// metrics called variance are standard deviations, as in RAGEN.
func metric(name string) (family string, score func(summary) float64, err error) {
	std := func(s summary) float64 { return s.std }
	mean := func(s summary) float64 { return s.mean }
	switch name {
	case "reward_variance":
		return "reward", std, nil
	case "reward":
		return "reward", mean, nil
	case "reward_sum":
		return "reward", func(s summary) float64 { return s.sum }, nil
	case "entropy":
		return "entropy", mean, nil
	case "entropy_variance":
		return "entropy", std, nil
	case "length":
		return "length", mean, nil
	}
	return "", nil, fmt.Errorf("filter.metric: %q is none of reward_variance, reward, reward_sum, entropy, "+
		"entropy_variance, length", name)
}

func values(members []Member, family string) []float64 {
	out := make([]float64, len(members))
	for i, m := range members {
		switch family {
		case "reward":
			out[i] = m.Score
		case "entropy":
			out[i] = m.Entropy
		case "length":
			out[i] = float64(m.Length)
		}
	}
	return out
}
