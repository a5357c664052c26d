package episode

import (
	"strings"
	"testing"
)

// What lies exactly on a bound is as legal as what lies within, and what lies one beyond is not.
func TestBounds(t *testing.T) {
	for name, spoil := range map[string]func(*Episode){
		"":                                  func(*Episode) {},
		"token 0":                           func(e *Episode) { e.IDs[2] = 0 },
		"a reward on the first token":       func(e *Episode) { e.Rewards[0].Token = 0 },
		"a reward on the last":              func(e *Episode) { e.Rewards[0].Token = 5 },
		"an empty observation":              func(e *Episode) { e.Turns[1] = Turn{4, 4, 6} },
		"an empty reply":                    func(e *Episode) { e.Turns[1] = Turn{4, 6, 6} },
		"a turn that begins where one ends": func(e *Episode) { e.Turns[1] = Turn{4, 5, 5} },
		"group and episode 0":               func(e *Episode) { e.Group, e.Index, e.Step = 0, 0, 0 },
		"a context of one token":            func(e *Episode) { e.Contexts = []int{0, 1}; e.Rewards = nil },
	} {
		e := sample()
		spoil(e)
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		line, err := Encode(e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if again, err := Decode(line, 0); err != nil || len(again.Turns) != len(e.Turns) {
			t.Errorf("%s: read back as %+v, %v", name, again, err)
		}
	}
	for want, spoil := range map[string]func(*Episode){
		"ids[2] = -1": func(e *Episode) { e.IDs[2] = -1 },
		"rewards[0] is for token -1, expected 0 to 5": func(e *Episode) { e.Rewards[0].Token = -1 },
		"rewards[0] is for token 6, expected 0 to 5":  func(e *Episode) { e.Rewards[0].Token = 6 },
		"turns[1] = [3, 5, 6]":                        func(e *Episode) { e.Turns[1].Observation = 3 },
		"turns[1] = [5, 4, 6]":                        func(e *Episode) { e.Turns[1] = Turn{5, 4, 6} },
		"turns[1] = [4, 5, 7]":                        func(e *Episode) { e.Turns[1].End = 7 },
		"turns[1] = [4, 6, 5]":                        func(e *Episode) { e.Turns[1] = Turn{4, 6, 5} },
		"group = -1":                                  func(e *Episode) { e.Group = -1 },
		"episode = -1":                                func(e *Episode) { e.Index = -1 },
		"step = -1":                                   func(e *Episode) { e.Step = -1 },
		"contexts[2] = 1, expected 2":                 func(e *Episode) { e.Contexts = []int{0, 1, 1} },
		"contexts[1] = 6, expected 1 to":              func(e *Episode) { e.Contexts = []int{0, 6} },
	} {
		e := sample()
		spoil(e)
		if err := e.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for want, line := range map[string]string{
		`rewards[0] is for token -1, expected 0 to 1`: `{"group":0,"ids":[0,2],"mask":[0,1],"rewards":[[-1,1]]}`,
		`rewards[0] is for token 2, expected 0 to 1`:  `{"group":0,"ids":[0,2],"mask":[0,1],"rewards":[[2,1]]}`,
		`rewards[0] = [0.5 1], expected`:              `{"group":0,"ids":[0,2],"mask":[0,1],"rewards":[[0.5,1]]}`,
		`logprobs has 3 entries, expected 2`:          `{"group":0,"ids":[0,2],"mask":[0,1],"rewards":[],"logprobs":[null,-1,-1]}`,
		`turns[0] has 2 numbers`:                      `{"group":0,"ids":[0,2],"mask":[0,1],"rewards":[],"turns":[[0,1]]}`,
	} {
		if _, err := Decode([]byte(line), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
	if n := sample().PolicyTokens(); n != 3 {
		t.Errorf("%d sampled tokens, want 3", n)
	}
}
