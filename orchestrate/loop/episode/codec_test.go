package episode

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func sample() *Episode {
	return &Episode{
		Step: 7, Group: 3, Index: 50, Tag: `sokoban "hard"`, Seed: 10059,
		IDs:     []int32{1, 319, 88, 2, 5, 77},
		Mask:    []bool{false, false, true, true, false, true},
		Logprob: []float32{0, 0, -0.31, -1e-7, 0, float32(math.Log(0.3))},
		Rewards: []Reward{{3, -0.1}, {5, 10.9}},
		Score:   10.8, Success: true, Stop: Terminated,
		Turns: []Turn{{0, 2, 4}, {4, 5, 6}},
	}
}

func TestLineFormat(t *testing.T) {
	got, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"step":7,"group":3,"episode":50,"tag":"sokoban \"hard\"","seed":10059,"ids":[1,319,88,2,5,77],` +
		`"mask":[0,0,1,1,0,1],"logprobs":[null,null,-0.31,-1e-7,null,-1.2039728],"rewards":[[3,-0.1],[5,10.9]],` +
		`"score":10.8,"success":true,"stop":"terminated","turns":[[0,2,4],[4,5,6]]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Named parts and the starts of contexts follow the other fields, the parts by name; a line without them is as it was.
func TestComponentsAndContexts(t *testing.T) {
	e := sample()
	e.Contexts = []int{0, 4}
	e.Components = map[string][]Reward{"length": {{2, 0.25}, {3, 0.25}}, "a \"b\"": {}, "correctness": {{5, 1}}}
	line, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	want := `"turns":[[0,2,4],[4,5,6]],"contexts":[0,4],"components":{"a \"b\"":[],"correctness":[[5,1]],"length":[[2,0.25],[3,0.25]]}}`
	if !strings.HasSuffix(string(line), want) {
		t.Errorf("got %s, want it to end in %s", line, want)
	}
	got, err := Decode(line, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.Components[`a "b"`] = nil
	if !reflect.DeepEqual(got, e) {
		t.Errorf("got %+v, want %+v", got, e)
	}
	for token, want := range []int{0, 0, 0, 0, 4, 4} {
		if got := e.SequenceStart(token); got != want {
			t.Errorf("the sequence of token %d starts at %d, want %d", token, got, want)
		}
	}
	for name, spoil := range map[string]func(*Episode){
		"components.length[0] is for token 6": func(e *Episode) { e.Components["length"] = []Reward{{6, 1}} },
		"components.length[0] = NaN":          func(e *Episode) { e.Components["length"] = []Reward{{5, math.NaN()}} },
		"a name is empty":                     func(e *Episode) { e.Components[""] = nil },
		"contexts[0] = 1, expected 0":         func(e *Episode) { e.Contexts = []int{1} },
		"contexts[1] = 0, expected 1 to 5":    func(e *Episode) { e.Contexts = []int{0, 0} },
		"contexts[1] = 6, expected 1 to 5":    func(e *Episode) { e.Contexts = []int{0, 6} },
		"mask[2] = 1, but contexts[1]":        func(e *Episode) { e.Contexts = []int{0, 2} },
	} {
		bad := sample()
		bad.Components = map[string][]Reward{}
		spoil(bad)
		if _, err := Encode(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
	}
}

func TestFileRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rollouts", "step_7.jsonl")
	unknown := sample()
	unknown.Logprob, unknown.Index = nil, 51
	want := []*Episode{sample(), unknown}
	if err := WriteFile(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHandWrittenLineGetsDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hand.jsonl")
	line := `{"group": 0, "ids": [4, 5, 6, 7], "mask": [0, 1, 0, 1], "rewards": [[1, 0.5], [3, 1]]}`
	if err := os.WriteFile(path, []byte("\n"+line+"\n\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &Episode{
		Index: 1, IDs: []int32{4, 5, 6, 7}, Mask: []bool{false, true, false, true}, Rewards: []Reward{{1, 0.5}, {3, 1}},
		Score: 1.5, Unjudged: true, Turns: []Turn{{0, 1, 2}, {2, 3, 4}},
	}
	if len(got) != 2 || !reflect.DeepEqual(got[1], want) {
		t.Errorf("got %+v, want two episodes, the second %+v", got, want)
	}
}

func TestRejections(t *testing.T) {
	for name, c := range map[string]struct{ line, want string }{
		"not json":      {`{"group": 0,`, "not a JSON object"},
		"an array":      {`[1, 2]`, "got array"},
		"missing ids":   {`{"group":0,"mask":[0,1],"rewards":[]}`, `field "ids" is missing`},
		"missing group": {`{"ids":[1,2],"mask":[0,1],"rewards":[]}`, `field "group" is missing`},
		"component pair": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"components":{"a":[[1]]}}`,
			"components.a[0] = [1], expected [token index, reward]"},
		"component null": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"components":{"a":[[1,null]]}}`,
			`"components.a" holds a null`},
		"component path": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"components":{"a/../../../b":[[1,1]]}}`,
			`components: the name "a/../../../b": expected`},
		"component text": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"components":{"a":"x"}}`,
			`"components.a": got string, expected a list`},
		"misspelt components": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"component":{}}`,
			`did you mean "components"?`},
		"misspelt field": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"logprob":[null,-1]}`,
			`did you mean "logprobs"?`},
		"text as ids": {`{"group":0,"ids":["a","b"],"mask":[0,1],"rewards":[]}`,
			`field "ids": got string, expected an integer`},
		"fraction as id": {`{"group":0,"ids":[1,2.5],"mask":[0,1],"rewards":[]}`, `field "ids": got number 2.5`},
		"null id":        {`{"group":0,"ids":[1,null],"mask":[0,1],"rewards":[]}`, `field "ids" holds a null`},
		"negative id":    {`{"group":0,"ids":[1,-2],"mask":[0,1],"rewards":[]}`, `ids[1] = -2`},
		"id beyond 32 bits": {`{"group":0,"ids":[1,4294967296],"mask":[0,1],"rewards":[]}`,
			`field "ids": got number 4294967296`},
		"empty":               {`{"group":0,"ids":[],"mask":[],"rewards":[]}`, `ids is empty`},
		"short mask":          {`{"group":0,"ids":[1,2],"mask":[0],"rewards":[]}`, `mask has 1 entries, expected 2`},
		"mask of 2":           {`{"group":0,"ids":[1,2],"mask":[0,2],"rewards":[]}`, `mask[1] = 2, expected 0 or 1`},
		"first token trained": {`{"group":0,"ids":[1,2],"mask":[1,1],"rewards":[]}`, `mask[0] = 1`},
		"logprob missing": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"logprobs":[null,null]}`,
			`logprobs[1] is null`},
		"short logprobs": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"logprobs":[null]}`,
			`logprobs has 1 entries`},
		"infinite logprob": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"logprobs":[null,-1e60]}`,
			`field "logprobs"`},
		"reward outside": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[[2,1]]}`,
			`rewards[0] is for token 2, expected 0 to 1`},
		"reward without pair": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[1]}`, `field "rewards": got number`},
		"reward triple": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[[1,2,3]]}`,
			`expected [token index, reward]`},
		"infinite reward": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[[1,1e999]]}`, `field "rewards"`},
		"unknown stop": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"stop":"bored"}`,
			`stop = "bored", expected one of terminated`},
		"turn outside": {`{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[],"turns":[[0,1,3]]}`,
			`turns[0] = [0, 1, 3]`},
		"turns overlap": {`{"group":0,"ids":[1,2,3],"mask":[0,1,1],"rewards":[],"turns":[[0,1,2],[1,2,3]]}`,
			`turns[1] = [1, 2, 3]`},
		"negative group": {`{"group":-1,"ids":[1,2],"mask":[0,1],"rewards":[]}`, `group = -1`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.jsonl")
			good := `{"group":0,"ids":[1,2],"mask":[0,1],"rewards":[]}`
			if err := os.WriteFile(path, []byte(good+"\n"+c.line+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadFile(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+":2: ") {
				t.Errorf("got error %v, want %s:2 and %q", err, path, c.want)
			}
		})
	}
}

func TestWriterRefusesWhatTheReaderWould(t *testing.T) {
	for name, spoil := range map[string]func(*Episode){
		"NaN reward":   func(e *Episode) { e.Rewards[0].Value = math.NaN() },
		"Inf logprob":  func(e *Episode) { e.Logprob[2] = float32(math.Inf(-1)) },
		"short mask":   func(e *Episode) { e.Mask = e.Mask[:3] },
		"path as name": func(e *Episode) { e.Components = map[string][]Reward{"a/../b": {{Token: 2, Value: 1}}} },
		"NaN score":    func(e *Episode) { e.Score = math.NaN() },
	} {
		e := sample()
		spoil(e)
		folder := t.TempDir()
		if err := WriteFile(filepath.Join(folder, "x.jsonl"), []*Episode{sample(), e}); err == nil {
			t.Errorf("%s: written without an error", name)
		}
		if left, _ := os.ReadDir(folder); len(left) > 0 {
			t.Errorf("%s: %s was left behind", name, left[0].Name())
		}
	}
}

func TestEmptyFileIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "no episodes") {
		t.Errorf("got error %v, want one that says there are no episodes", err)
	}
}
