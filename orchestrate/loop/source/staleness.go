package source

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gyre/orchestrate/loop/episode"
)

// StalenessMetrics say how old the weights were that drew the tokens of a batch.
type StalenessMetrics struct {
	Mean   float64            `metric:"staleness/mean" unit:"steps" doc:"training steps between the drawing of a token and the training on it, mean over the sampled tokens trained on (runs with rollout.staleness > 0)"`
	Max    int                `metric:"staleness/max" unit:"steps" doc:"the most: at most rollout.staleness"`
	Shares map[string]float64 `metric:"staleness/share/{steps}" unit:"share" doc:"of the sampled tokens, by staleness"`
	Mixed  float64            `metric:"staleness/mixed" unit:"share" doc:"of the sampled tokens: drawn with keys and values of older weights (rollout.on_update = keep)"`
}

// MixedMetrics say what keys and values of older weights make of log-probs.
type MixedMetrics struct {
	Mean float64 `metric:"ratio/mixed_mean" doc:"of tokens that the newest weights drew with keys and values of older ones (rollout.on_update = keep), where the trainer has scored them before its first change: mean distance of the recorded log-prob from that of the newest weights alone"`
	Max  float64 `metric:"ratio/mixed_max" doc:"the largest"`
}

// Mixed compares the log-probs of episodes with those that the weights before a step's update give their tokens; nil
// where the newest weights drew no token with keys and values of older ones.
func Mixed(episodes []*episode.Episode, logprobs [][]float32, step int) *MixedMetrics {
	m, tokens := MixedMetrics{}, 0.0
	for i, e := range episodes {
		for _, part := range e.Mixed {
			for t := part[0]; t < part[1]; t++ {
				run, _ := slices.BinarySearchFunc(e.Versions, t+1, func(r episode.Run, t int) int {
					return cmp.Compare(r.Token, t)
				})
				if !e.Mask[t] || run == 0 || e.Versions[run-1].Version != step-1 {
					continue
				}
				gap := math.Abs(float64(logprobs[i][t]) - float64(e.Logprob[t]))
				m.Mean, m.Max, tokens = m.Mean+gap, max(m.Max, gap), tokens+1
			}
		}
	}
	if tokens == 0 {
		return nil
	}
	m.Mean /= tokens
	return &m
}

// Ages counts the training steps between the drawing of each token and the training on it at a step; -1 where
// the policy drew nothing.
func Ages(episodes []*episode.Episode, step int) [][]int {
	all := make([][]int, len(episodes))
	for i, e := range episodes {
		run := -1
		for t, sampled := range e.Mask {
			for run+1 < len(e.Versions) && e.Versions[run+1].Token <= t {
				run++
			}
			age := -1
			if sampled && run >= 0 {
				age = step - 1 - e.Versions[run].Version
			}
			all[i] = append(all[i], age)
		}
	}
	return all
}

// Staleness describes episodes of a batch that is trained on at a step; nil where its step's weights drew all tokens,
// or nobody knows which did.
func (p Provenance) Staleness(episodes []*episode.Episode, step int) *StalenessMetrics {
	if p.Weights != Older {
		return nil
	}
	m, tokens := &StalenessMetrics{Shares: map[string]float64{}}, 0.0
	for i, ages := range Ages(episodes, step) {
		e := episodes[i]
		for _, stale := range ages {
			if stale < 0 {
				continue
			}
			tokens++
			m.Mean, m.Max = m.Mean+float64(stale), max(m.Max, stale)
			m.Shares[fmt.Sprint(stale)]++
		}
		for _, part := range e.Mixed {
			m.Mixed += float64(part[1] - part[0])
		}
	}
	m.Mixed /= max(tokens, 1)
	m.Mean /= max(tokens, 1)
	for key := range m.Shares {
		m.Shares[key] /= tokens
	}
	return m
}
