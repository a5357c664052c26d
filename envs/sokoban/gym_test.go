package sokoban

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
)

// A thousand random episodes of gym-sokoban: moves, rewards, the end and the final board are the same here.
func TestAgreesWithGymSokoban(t *testing.T) {
	file, err := os.Open("testdata/gym_sokoban.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rewards := map[byte]float64{'.': -0.1, '+': 0.9, '-': -1.1, '!': 10.9}
	names := map[byte]string{'U': "Up", 'D': "Down", 'L': "Left", 'R': "Right"}
	seen := map[byte]int{}
	lines := bufio.NewScanner(file)
	episodes := 0
	for ; lines.Scan(); episodes++ {
		var level, actions, paid, moved, end string
		var done bool
		if err := json.Unmarshal(lines.Bytes(), &[]any{&level, &actions, &paid, &moved, &done, &end}); err != nil {
			t.Fatal(err)
		}
		g := play(t, map[string]any{"level": strings.ReplaceAll(level, "/", "\n")})
		for i := range len(actions) {
			r, err := g.Step(t.Context(), names[actions[i]])
			if err != nil {
				t.Fatalf("%s, step %d of %s: %v", level, i, actions, err)
			}
			last := i == len(actions)-1
			if math.Abs(r.Reward-rewards[paid[i]]) > 1e-9 || r.Effective != (moved[i] == '1') ||
				r.Done != (last && done) {
				t.Fatalf("%s, step %d of %s: %+v, gym-sokoban pays %c, moves %c", level, i, actions, r, paid[i],
					moved[i])
			}
			seen[paid[i]]++
		}
		if got := strings.ReplaceAll(g.Observe().Text, "\n", "/"); got != end {
			t.Fatalf("%s after %s: %s, gym-sokoban has %s", level, actions, got, end)
		}
	}
	if episodes < 1000 || len(seen) != len(rewards) {
		t.Errorf("%d episodes with rewards %v: the fixture shows too little", episodes, seen)
	}
}
