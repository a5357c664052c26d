package budget

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// posterior is what is believed of a group's rewards: success with a probability that has the Beta distribution of α
// and β, and rewards of a mean and a variance in either case.
type posterior struct {
	alpha, beta float64
	won, lost   float64 // variances of the rewards of successes and of failures
	apart       float64 // the distance of their means
	energy      float64 // of the score functions
}

// The share of p(1 − p) that a source's tasks may leave within groups: with less they would be known beforehand, with
// all of it they would not differ.
const leastWithin, mostWithin = 0.02, 0.98

// posterior of a group: the source's distribution over tasks, fitted by moments, is the prior of each task; known tells
// whether anything was seen of the source.
func (s *State) posterior(p Place) (out posterior, known bool) {
	if p.Source >= len(s.Sources) {
		return out, false
	}
	own := s.Sources[p.Source]
	seen := own.Won.Count + own.Lost.Count
	if seen == 0 || own.Within.Count == 0 {
		return out, false
	}
	mean := (own.Won.Count + 0.5) / (seen + 1)
	within := min(max(own.Within.mean()/(mean*(1-mean)), leastWithin), mostWithin)
	size := within / (1 - within) // of Beta(α, β): E p(1 − p) is the share size/(size + 1) of that of the mean
	t := s.Tasks[p.key()]
	out = posterior{alpha: size*mean + t.Successes, beta: size*(1-mean) + t.Failures, won: own.Won.variance(),
		lost: own.Lost.variance(), apart: 1}
	if own.Won.Count > 0 && own.Lost.Count > 0 {
		out.apart = own.Won.mean() - own.Lost.mean()
	}
	if out.energy = own.Energy.mean(); own.Spread > 0 { // energies weigh by what they are multiplied with
		out.energy = own.Noise / own.Spread
	}
	return out, true
}

// variance is the expected variance of the group's rewards.
func (p posterior) variance() float64 {
	sum := p.alpha + p.beta
	return p.alpha*p.beta/(sum*(sum+1))*p.apart*p.apart + (p.alpha*p.won+p.beta*p.lost)/sum
}

// sampled are the mean and the variance of the unbiased variance of n rewards: over the numbers of successes, which are
// Beta-binomial, and over what rewards vary by themselves, as if normal.
func (p posterior) sampled(n int) (mean, variance float64) {
	square := 0.0
	for k := range n + 1 {
		won, size := float64(k), float64(n)
		chance := math.Exp(logChoose(size, won) + mathext.Lbeta(won+p.alpha, size-won+p.beta) -
			mathext.Lbeta(p.alpha, p.beta))
		lost, own := size-won, won*p.won+(size-won)*p.lost
		value := p.apart*p.apart*won*lost/(size*(size-1)) + own/size
		mean += chance * value
		square += chance * (value*value + p.around(won, lost)/((size-1)*(size-1)))
	}
	return mean, max(square-mean*mean, 0)
}

// around is the variance of the sum of squared deviations of normal rewards with given numbers of successes and
// failures: that of the quadratic form x'Ax, 2·tr(AΣAΣ) + 4·μ'AΣAμ, where A takes off the mean.
func (p posterior) around(won, lost float64) float64 {
	size, own := won+lost, won*p.won+lost*p.lost
	trace := (won*p.won*p.won+lost*p.lost*p.lost)*(1-2/size) + own*own/(size*size)
	up, down := p.apart*lost/size, p.apart*won/size
	return 2*trace + 4*(won*p.won*up*up+lost*p.lost*down*down)
}

func logChoose(n, k float64) float64 { return -math.Log(n+1) - mathext.Lbeta(n-k+1, k+1) }
