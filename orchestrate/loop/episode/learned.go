package episode

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"gyre/internal/atomicfile"
	"gyre/internal/lines"
	"gyre/internal/quote"
)

// Learned is what an update knew of the sampled tokens of one episode beside what the episode itself says. One line of
// rollouts/update_N.jsonl is one of them:
//
//	{"episode": 50, "advantages": [[34, 0.71], [75, -0.2]], "ratios": [[34, 1.02]], "entropies": [[34, 0.4]]}
//
// A pair (token, value) holds for the sampled tokens from its token to the next pair's. A column is absent where the
// step did not compute it. Episodes that the filter has dropped have no line.
type Learned struct {
	Episode    int   `json:"episode"`
	Advantages Pairs `json:"advantages,omitempty"`
	Ratios     Pairs `json:"ratios,omitempty"`    // probability of the token when training began over that when it was drawn
	Entropies  Pairs `json:"entropies,omitempty"` // of the policy before the update, in nats
}

// Pairs are (token, value) pairs by ascending token.
type Pairs [][2]float64

// PairsOf shortens a column to where its values change; only sampled tokens count. A nil column has none.
func PairsOf(column []float32, mask []bool) (p Pairs) {
	var last float32
	for t, v := range column {
		if !mask[t] || p != nil && v == last {
			continue
		}
		// the shortest decimal of a float32 is a third of that of the same float64
		short, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
		if err == nil && short-short == 0 {
			p, last = append(p, [2]float64{float64(t), short}), v
		}
	}
	return p
}

// Column is what a sampled token has, for each of n tokens; nil without pairs.
func (p Pairs) Column(n int) []float64 {
	if len(p) == 0 {
		return nil
	}
	out, at := make([]float64, n), 0
	for t := range out {
		for at+1 < len(p) && int(p[at+1][0]) <= t {
			at++
		}
		out[t] = p[at][1]
	}
	return out
}

// WriteLearned writes a step's lines, all or nothing.
func WriteLearned(path string, list []Learned) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		out := bufio.NewWriter(w)
		encoder := json.NewEncoder(out)
		for _, l := range list {
			if err := encoder.Encode(l); err != nil {
				return fmt.Errorf("%s: episode %d: %w", path, l.Episode, err)
			}
		}
		return out.Flush()
	})
}

// ReadLearned reads a step's lines by episode.
func ReadLearned(path string) (map[int]Learned, error) {
	out := map[int]Learned{}
	for line, err := range lines.Read(path) {
		if err != nil {
			return nil, err
		}
		var l Learned
		if len(line.Text) == 0 {
			continue
		}
		if err := json.Unmarshal(line.Text, &l); err != nil {
			return nil, line.Fault(quote.JSON(err))
		}
		out[l.Episode] = l
	}
	return out, nil
}
