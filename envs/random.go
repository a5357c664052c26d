package envs

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
)

// Rand returns a generator keyed by a stream name and numbers (a seed, a member index, …). Equal keys give equal
// sequences on every machine; different keys give independent ones.
func Rand(stream string, key ...int64) *rand.Rand {
	return rand.New(rand.NewPCG(hash("a/"+stream, key), hash("b/"+stream, key)))
}

// Reseed returns the seed to try next when nothing can be generated from a seed.
func Reseed(seed int64) int64 {
	return int64(hash("reseed", []int64{seed}) >> 1)
}

// hash is FNV-1a over the stream name and the numbers, finished by splitmix64's mixer because FNV alone leaves nearby
// keys with similar high bits.
func hash(stream string, key []int64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(stream))
	for _, k := range key {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(k)))
	}
	z := h.Sum64()
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Outcome sums up one episode.
type Outcome struct {
	Return  float64
	Actions int
	Success bool // it ended in success
}

// PlayRandom plays one episode with uniformly random actions, at most maxActions of them. It is the baseline that any
// trained policy must beat.
func PlayRandom(ctx context.Context, env Env, seed int64, maxActions int, rng *rand.Rand) (Outcome, error) {
	var o Outcome
	start, err := env.Reset(ctx, seed, 0)
	if err != nil {
		return o, err
	}
	actions := start.Actions
	if len(actions) == 0 {
		return o, errors.New("a random policy needs an environment that names its actions")
	}
	for o.Actions < maxActions {
		r, err := env.Step(ctx, actions[rng.IntN(len(actions))])
		if err != nil {
			return o, err
		}
		o.Actions++
		o.Return += r.Reward
		if r.Done {
			o.Success = r.Success
			break
		}
	}
	return o, nil
}
