package episode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// AppendJSON appends the episode's line, without the newline, to dst. It fails on what the format cannot hold or the
// reader would refuse: slices of unequal length, tokens outside the episode, numbers that are not finite.
func AppendJSON(dst []byte, e *Episode) ([]byte, error) {
	if err := e.Check(); err != nil {
		return dst, err
	}
	tag, err := json.Marshal(e.Tag)
	if err != nil {
		return dst, fmt.Errorf("tag: %w", err)
	}
	stop, err := json.Marshal(e.Stop)
	if err != nil {
		return dst, fmt.Errorf("stop: %w", err)
	}
	label, err := json.Marshal(e.Label)
	if err != nil {
		return dst, fmt.Errorf("label: %w", err)
	}
	gold, err := json.Marshal(e.Gold)
	if err != nil {
		return dst, fmt.Errorf("gold: %w", err)
	}
	dst = appendInt(append(dst, `{"step":`...), e.Step)
	dst = appendInt(append(dst, `,"group":`...), e.Group)
	dst = appendInt(append(dst, `,"episode":`...), e.Index)
	dst = append(append(dst, `,"tag":`...), tag...)
	if e.Label != "" {
		dst = append(append(dst, `,"label":`...), label...)
	}
	if e.Gold != "" {
		dst = append(append(dst, `,"gold":`...), gold...)
	}
	dst = strconv.AppendInt(append(dst, `,"seed":`...), e.Seed, 10)

	dst = appendList(append(dst, `,"ids":`...), len(e.IDs), func(dst []byte, t int) []byte {
		return appendInt(dst, int(e.IDs[t]))
	})
	dst = appendList(append(dst, `,"mask":`...), len(e.Mask), func(dst []byte, t int) []byte {
		if e.Mask[t] {
			return append(dst, '1')
		}
		return append(dst, '0')
	})
	if e.Logprob != nil {
		dst = appendList(append(dst, `,"logprobs":`...), len(e.Logprob), func(dst []byte, t int) []byte {
			if !e.Mask[t] {
				return append(dst, "null"...)
			}
			// Shortest decimal that reads back to the same 32 bits: saved log-probs stay exact.
			return strconv.AppendFloat(dst, float64(e.Logprob[t]), 'g', -1, 32)
		})
	}
	dst = appendRewards(append(dst, `,"rewards":`...), e.Rewards)
	dst = appendFloat(append(dst, `,"score":`...), e.Score)
	dst = strconv.AppendBool(append(dst, `,"success":`...), e.Success)
	dst = append(append(dst, `,"stop":`...), stop...)
	dst = appendList(append(dst, `,"turns":`...), len(e.Turns), func(dst []byte, i int) []byte {
		turn := e.Turns[i]
		dst = appendInt(append(dst, '['), turn.Observation)
		dst = appendInt(append(dst, ','), turn.Reply)
		dst = appendInt(append(dst, ','), turn.End)
		return append(dst, ']')
	})
	if e.Contexts != nil {
		dst = appendList(append(dst, `,"contexts":`...), len(e.Contexts), func(dst []byte, i int) []byte {
			return appendInt(dst, e.Contexts[i])
		})
	}
	if len(e.Components) > 0 {
		dst = append(dst, `,"components":`...)
		separator := byte('{')
		for _, name := range slices.Sorted(maps.Keys(e.Components)) {
			key, err := json.Marshal(name)
			if err != nil {
				return dst, fmt.Errorf("components: %w", err)
			}
			dst = appendRewards(append(append(append(dst, separator), key...), ':'), e.Components[name])
			separator = ','
		}
		dst = append(dst, '}')
	}
	return append(dst, '}'), nil
}

func appendRewards(dst []byte, rewards []Reward) []byte {
	return appendList(dst, len(rewards), func(dst []byte, i int) []byte {
		dst = appendInt(append(dst, '['), rewards[i].Token)
		dst = appendFloat(append(dst, ','), rewards[i].Value)
		return append(dst, ']')
	})
}

func appendList(dst []byte, n int, item func([]byte, int) []byte) []byte {
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = item(dst, i)
	}
	return append(dst, ']')
}

func appendInt(dst []byte, v int) []byte { return strconv.AppendInt(dst, int64(v), 10) }

func appendFloat(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'g', -1, 64) }
