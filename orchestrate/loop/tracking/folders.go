package tracking

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"gyre/internal/atomicfile"
)

// Reply is a validation reply with the log-probs of its tokens, in the schema of rldynamic's validation_step_N.json.
type Reply struct {
	Prompt         string     `json:"prompt"`
	UID            any        `json:"uid"`
	GroundTruth    any        `json:"ground_truth"`
	Response       string     `json:"response"`
	ResponseTokens []string   `json:"response_tokens"`
	TokenLogProbs  []*float64 `json:"token_log_probs"` // null where it is not known
	Reward         float64    `json:"reward"`
	Step           int        `json:"step"`
	RolloutIndex   int        `json:"rollout_idx"`
}

// Score is the mean log-prob of a reply's first k tokens (of all, if there are fewer); NaN when none is known.
func (r Reply) Score(k int) float64 {
	sum, n := 0.0, 0
	for _, p := range r.TokenLogProbs[:min(max(k, 0), len(r.TokenLogProbs))] {
		if p != nil {
			sum += *p
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// WriteReplies writes a validation's replies to validation_step_STEP.json in dir.
func WriteReplies(dir string, step int, replies []Reply) error {
	path := filepath.Join(dir, fmt.Sprintf("validation_step_%d.json", step))
	return atomicfile.Write(path, func(w io.Writer) error {
		out := json.NewEncoder(w)
		out.SetEscapeHTML(false)
		return out.Encode(replies)
	})
}

// Link makes path a symbolic link to a folder, which need not exist yet. A link that is there is replaced; taken says
// that something else is there, which stays.
func Link(folder, path string) (taken bool, err error) {
	target, err := filepath.Abs(folder)
	if err != nil {
		return false, err
	}
	if there, err := os.Lstat(path); err == nil && there.Mode()&fs.ModeSymlink == 0 {
		return true, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	return false, atomicfile.Symlink(target, path)
}
