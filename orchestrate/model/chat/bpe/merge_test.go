package bpe

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// mergeSlowly is BPE by its definition: of all pairs the one of lowest rank merges, leftmost first.
func mergeSlowly(tokens []int32, rules map[uint64]rule) []int32 {
	tokens = slices.Clone(tokens)
	for {
		best, at := rule{rank: 1 << 30}, -1
		for i := 1; i < len(tokens); i++ {
			if r, ok := rules[pairKey(tokens[i-1], tokens[i])]; ok && r.rank < best.rank {
				best, at = r, i-1
			}
		}
		if at < 0 {
			return tokens
		}
		tokens[at] = best.id
		tokens = slices.Delete(tokens, at+1, at+2)
	}
}

func TestMergeEqualsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		rules := map[uint64]rule{}
		next := int32(3)
		for rank := range int32(rng.IntN(12)) {
			rules[pairKey(rng.Int32N(next), rng.Int32N(next))] = rule{rank, next}
			next++
		}
		tokens, word := make([]int32, rng.IntN(40)), ""
		for i := range tokens {
			tokens[i] = rng.Int32N(3)
			word += string("abc"[tokens[i]])
		}
		e := encoder{model: &model{raw: map[string]int32{"a": 0, "b": 1, "c": 2}, rules: rules}}
		var got []int32
		width := 0
		for _, merged := range e.merge(word, nil) {
			got, width = append(got, merged.id), width+int(merged.width)
		}
		if want := mergeSlowly(tokens, rules); !slices.Equal(got, want) || width != len(word) {
			t.Fatalf("merging %v by %v: got %v of %d bytes, want %v", tokens, rules, got, width, want)
		}
	}
}

// Texts that make naive tokenizers quadratic: one word of 128 Ki characters, as many spaces, combining
// marks, starts of an added token. Quadratic work would take minutes.
func TestLongTextsTakeLittleTime(t *testing.T) {
	const n = 1 << 17
	for _, name := range []string{"qwen2", "smollm"} {
		tok := load(t, name)
		for _, unit := range []string{"a", "the", " ", "\n ", "\u0301", "<|im_", "'", "1", "\u00a0"} {
			text := strings.Repeat(unit, n/len(unit))
			start := time.Now()
			ids, err := tok.EncodeMarkup(text + "x")
			if err != nil || len(ids) == 0 {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("%s: %d bytes of %+q took %v", name, n, unit, took)
			}
		}
	}
	if _, err := load(t, "qwen2").EncodeOrdinary(strings.Repeat("x", MaxText+1)); err == nil {
		t.Error("a text beyond MaxText was accepted")
	}
}
