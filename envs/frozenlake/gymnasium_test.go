package frozenlake

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"testing"
)

// Every transition of Gymnasium's tables, on fixed and random maps, has the same probability, reward and end here.
// A slip is a function of one uniform number, so its probabilities are the lengths of the stretches that a fine
// comb finds.
func TestAgreesWithGymnasium(t *testing.T) {
	file, err := os.Open("testdata/gymnasium.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	type outcome struct {
		state  int
		reward float64
		done   bool
	}
	transitions := 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var row struct {
			Map         []any
			Slippery    bool
			SuccessRate float64 `json:"success_rate"`
			Transitions [][]json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		g := play(t, map[string]any{"map": row.Map, "slippery": row.Slippery, "success_rate": row.SuccessRate}, 1)
		for _, transition := range row.Transitions {
			var state, action int
			var outcomes [][]any
			if err := json.Unmarshal([]byte("["+string(transition[0])+","+string(transition[1])+","+
				string(transition[2])+"]"),
				&[]any{&state, &action, &outcomes}); err != nil {
				t.Fatal(err)
			}
			want := map[outcome]float64{}
			for _, o := range outcomes {
				want[outcome{int(o[1].(float64)), o[2].(float64), o[3].(bool)}] += o[0].(float64)
			}
			got := map[outcome]float64{}
			const comb = 3000 // a multiple of every probability's denominator
			for k := range comb {
				g.player = g.lake.At(state)
				r := g.move(action, (float64(k)+0.5)/comb)
				got[outcome{g.lake.Index(g.player), r.Reward, r.Done}] += 1.0 / comb
			}
			for o, p := range want {
				if math.Abs(got[o]-p) > 1e-9 {
					t.Fatalf("%v, success rate %g, state %d, action %d: %v, Gymnasium has %v", row.Map, row.SuccessRate,
						state, action, got, want)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%v, state %d, action %d: outcomes %v, Gymnasium has %v", row.Map, state, action, got, want)
			}
			transitions++
		}
	}
	if transitions < 1000 {
		t.Errorf("only %d transitions compared", transitions)
	}
}
