package work

import (
	"reflect"
	"slices"
	"testing"

	_ "gyre/envs/builtin"
	"gyre/orchestrate/loop/sft"
	"gyre/orchestrate/model/checkpoint/policyinit"
)

func material(t *testing.T) *Material {
	t.Helper()
	dir := t.TempDir()
	corpus, err := sft.Corpus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = policyinit.Create(dir, policyinit.Options{Family: "llama", Hidden: 16, Layers: 1, Heads: 2, KVHeads: 1,
		Intermediate: 16, Vocab: 512, MaxPositions: 256, Tie: true, Std: 0.02, Corpus: corpus})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMaterial(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Every case has a task of its shape, the same in every run and another in every repeat.
func TestTasks(t *testing.T) {
	m := material(t)
	for _, c := range Cases() {
		if !slices.Contains(Sessions, c.Session) {
			t.Errorf("%s belongs to session %q, which does not run", c.Name, c.Session)
		}
		task := func(repeat int) Task {
			task, err := m.Task(c, repeat)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			return task
		}
		one := task(1)
		if !reflect.DeepEqual(one, task(1)) {
			t.Errorf("%s: two tasks of one repeat differ", c.Name)
		}
		other := task(2)
		if other.Seed = one.Seed; c.Op != OpGRPO && c.Op != OpEnvironment && c.Op != OpWaiting &&
			reflect.DeepEqual(one, other) {
			t.Errorf("%s: the tasks of two repeats are the same", c.Name)
		}
		if task(0).Tokens() > one.Tokens() {
			t.Errorf("%s: the warm-up is longer than the task", c.Name)
		}
		tokens := map[string]int{"generate/1": 64, "generate/64": 4096, "generate/shared": 1024, "rollout": 16 * 5 * 32,
			"logprobs":     1024,
			"update/group": 8 * 192, "grpo": 4 * 8 * 64}
		if want, ok := tokens[c.Name]; ok && one.Tokens() != want {
			t.Errorf("%s has %d tokens, expected %d", c.Name, one.Tokens(), want)
		}
	}
}

func TestGroupsShareTheirContext(t *testing.T) {
	m := material(t)
	c := find(t, "update/group")
	task, err := m.Task(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	first := task.Sequences[0]
	for _, ids := range task.Sequences[1:] {
		if !slices.Equal(ids[:c.Context], first[:c.Context]) || slices.Equal(ids[c.Context:], first[c.Context:]) {
			t.Fatal("the sequences of a group share something else than their context")
		}
	}
}

// Observations are what the policy is shown between replies: five per episode, the first with the rules, the later
// ones short.
func TestObservations(t *testing.T) {
	m := material(t)
	observations, err := m.observations(4, 5, 1)
	if err != nil {
		t.Fatal(err)
	}
	stop := m.Tokenizer.StopIDs()
	for _, episode := range observations {
		if len(episode) != 5 {
			t.Fatalf("an episode has %d observations, expected 5", len(episode))
		}
		for turn, ids := range episode[1:] {
			if len(ids) >= len(episode[0]) || !slices.Contains(stop, ids[0]) {
				t.Errorf("observation %d has %d tokens of which the first is %d, expected fewer than the %d of the "+
					"first one and the end of a turn",
					turn+2, len(ids), ids[0], len(episode[0]))
			}
		}
	}
	if n := commonPrefix(observations); n < 10 || n >= len(observations[0][0]) {
		t.Errorf("first observations share %d tokens, expected the rules but not the level", n)
	}
}

func TestTextsHaveOneTokenPerWord(t *testing.T) {
	m := material(t)
	texts, err := m.texts(2, 40, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		if ids, err := m.Tokenizer.EncodeOrdinary(text); err != nil || len(ids) != 40 {
			t.Errorf("%q has %d tokens (%v), expected 40", text, len(ids), err)
		}
	}
}
