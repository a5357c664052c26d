package rollout

import (
	"gyre/internal/statistics"
	"gyre/orchestrate/loop/episode"
)

// Sources: RAGEN's reward normalisation. The deviation is the unbiased one, and a set whose deviation is at most
// smallestStd becomes all zeros.
const (
	smallestStd = 1e-6
	clipLow     = -1
	clipHigh    = 3
)

// normalize replaces scores within each set of episodes (of one group, tag or batch). Where every set holds a single
// episode there is nothing to compare with, and scores stay as they are. Rewards are never changed.
func normalize(episodes []*episode.Episode, method, within string) {
	if method == "identity" {
		return
	}
	type key struct {
		group int
		tag   string
	}
	sets := map[key][]*episode.Episode{}
	compared := false
	for _, e := range episodes {
		var k key
		switch within {
		case "state":
			k.group = e.Group
		case "tag":
			k.tag = e.Tag
		}
		sets[k] = append(sets[k], e)
		compared = compared || len(sets[k]) > 1
	}
	if !compared {
		return
	}
	for _, set := range sets {
		scores := make([]float64, len(set))
		for i, e := range set {
			scores[i] = e.Score
		}
		mean, std := statistics.Mean(scores), 0.0
		if len(set) > 1 {
			std = statistics.Deviation(scores)
		}
		for _, e := range set {
			e.Score = normalized(method, e.Score-mean, std)
		}
	}
}

// normalized is a score, of which the mean is taken, after a method.
func normalized(method string, centred, std float64) float64 {
	switch {
	case method == "mean":
		return centred
	case std <= smallestStd:
		return 0
	case method == "asym_clip":
		return min(max(centred/(std+smallestStd), clipLow), clipHigh)
	}
	return centred / (std + smallestStd)
}
