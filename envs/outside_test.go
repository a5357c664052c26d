package envs

import (
	"strings"
	"testing"
)

// What a program or a client says of an episode is read whole or refused: a misspelt key would pay for nothing.
func TestVerdictsAreReadWhole(t *testing.T) {
	v, err := ParseVerdict([]byte(`{"reward": 0.5, "components": {"form": 1}, "turn": 2, "success": false, "task": "x"}`))
	if err != nil || v.Reward != 0.5 || v.Components["form"] != 1 || *v.Turn != 2 || *v.Success || v.Task != "x" {
		t.Errorf("%+v, %v", v, err)
	}
	for text, want := range map[string]string{
		`{"reward": 1, "succes": false}`:  `no key "succes" (did you mean success?)`,
		`{"Reward": 1}`:                   `no key "Reward" (did you mean reward?)`,
		`{"reward": 1, "component": {}}`:  `did you mean components?`,
		`{"reward": 1, "foo": 2}`:         `no key "foo": expected reward, components`,
		`{"reward": {"a": 1}, "trun": 0}`: `did you mean turn?`,
		`{"success": true}`:               `neither "reward" nor "components"`,
		`[1]`:                             "a reward is a JSON object",
	} {
		if _, err := ParseVerdict([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
