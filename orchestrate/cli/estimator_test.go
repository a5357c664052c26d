package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The laboratory measures what it is asked for, people read it in 80 columns, and programs read JSON.
func TestEstimatorCheck(t *testing.T) {
	dir := t.TempDir()
	picture := filepath.Join(dir, "bias.png")
	out := mustIn(t, dir, "estimator", "check", "turn_rloo", "mt_grpo", "--samples", "400", "--figure", picture,
		"--dpi", "50")
	for _, want := range []string{"Bias in %", "turn_rloo  unbiased       0", "mt_grpo    biased        11"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if info, err := os.Stat(picture); err != nil || info.Size() < 1000 {
		t.Errorf("the figure: %v, %v", info, err)
	}

	out = mustIn(t, dir, "estimator", "check", "mt_grpo", "--samples", "400", "--group-size", "2", "--json")
	biased := 0
	for line := range strings.Lines(out) {
		var r struct {
			Estimator, Game, Condition    string
			Bias, Scale, Cosine, Variance float64
			Low                           float64 `json:"bias_low"`
			High                          float64 `json:"bias_high"`
			Exact                         int
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Estimator != "mt_grpo" || !(r.Low <= r.Bias && r.Bias <= r.High) || r.Variance <= 0 {
			t.Errorf("%+v", r)
		}
		if r.Game == "stop" && r.Condition == "" && r.Exact == 1 && r.Bias > 0.3 && r.Bias < 0.33 && r.Cosine < 0.96 {
			biased++
		}
	}
	if biased != 1 {
		t.Errorf("the bias in the game stop is not among\n%s", out)
	}

	code, _, stderr := runIn(t, dir, "estimator", "check", "turn_rlo")
	if code != 2 || !strings.Contains(stderr, "did you mean turn_rloo?") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
