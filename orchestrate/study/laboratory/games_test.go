package laboratory

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"

	"gyre/orchestrate/loop/advantage"
)

// given is a random game with what scripts/fixtures_estimators.py finds of each estimator, as it is and before anything
// is divided or whitened: the product of the mean gradient with cos(1), cos(2), …, and its mean square.
type given struct {
	Game  Game
	Setup struct {
		Groups, Size, Age int
		Discount, Lambda  float64
		Blind             bool
		Aggregation       string
	}
	Truth      float64
	Estimators map[string][4]float64
}

// Random games with aliased states, chance, turns of several tokens, several starts, discounts, old policies and all
// aggregations: means and second moments agree with another program. GYRE_GIVEN_GAMES names a file with more.
func TestRandomGames(t *testing.T) {
	text, err := os.ReadFile(cmp.Or(os.Getenv("GYRE_GIVEN_GAMES"), "testdata/games.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		var c given
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		number++
		product := func(v []float64) (sum float64) {
			for i := range v {
				sum += v[i] * math.Cos(float64(i+1))
			}
			return sum
		}
		if got := product(c.Game.Gradient(c.Game.Logits)); !(math.Abs(got-c.Truth) <= exactly) {
			t.Errorf("game %d: the true gradient is %v, want %v", number, got, c.Truth)
		}
		for _, e := range advantage.Estimators {
			want, found := c.Estimators[e.Name]
			if !found {
				t.Fatalf("game %d lacks %s: let scripts/fixtures_estimators.py know it", number, e.Name)
			}
			for k, linear := range []bool{false, true} {
				s := Setup{Estimator: e.Name, Groups: c.Setup.Groups, Size: c.Setup.Size, Discount: c.Setup.Discount,
					Lambda: c.Setup.Lambda, Linear: linear, Blind: c.Setup.Blind, Aggregation: c.Setup.Aggregation,
					Age: c.Setup.Age}
				m, _ := newSubject(c.Game, s).enumerate(1 << 20)
				scale := m.Scale * m.Scale * dot(m.Truth, m.Truth) / float64(s.Groups*s.Size)
				got := [2]float64{product(m.Mean), m.Variance*scale + dot(m.Mean, m.Mean)}
				for i, v := range got {
					if w := want[2*k+i]; !(math.Abs(v-w) <= exactly*max(1, math.Abs(w))) {
						t.Errorf("game %d: %s, linear %v: %v, want %v (%+v)", number, e.Name, linear, got,
							want[2*k:2*k+2], c.Setup)
						break
					}
				}
			}
		}
	}
	if number < 40 {
		t.Errorf("%d games, expected 40", number)
	}
}
