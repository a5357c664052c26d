package work

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	_ "gyre/envs/builtin" // registers sokoban
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/rollout"
	"gyre/orchestrate/model/chat"
)

// firstOrdinary is the first id drawn for random prompts: the ids below are special tokens in the vocabularies
// concerned.
const firstOrdinary = 100

// Material makes the tasks of a model.
type Material struct {
	Tokenizer *chat.Tokenizer
	VocabSize int
	Repeats   int // tasks 1 to Repeats are measured, task 0 is the warm-up

	words []string
}

// NewMaterial loads the tokenizer of a model directory.
func NewMaterial(model string, repeats int) (*Material, error) {
	tokenizer, err := chat.Load(model)
	if err != nil {
		return nil, fmt.Errorf("loading the tokenizer: %w", err)
	}
	m := &Material{Tokenizer: tokenizer, VocabSize: tokenizer.VocabSize(), Repeats: repeats}
	if m.VocabSize <= firstOrdinary {
		return nil, fmt.Errorf("%s has a vocabulary of %d tokens, expected more than %d", model, m.VocabSize,
			firstOrdinary)
	}
	for _, token := range tokenizer.Vocabulary() {
		if text := string(token); len(text) > 3 && text[0] == ' ' && letters(text[1:]) {
			m.words = append(m.words, text)
		}
	}
	return m, nil
}

func letters(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < 'a' || r > 'z' }) < 0
}

// Task is the case's work in a repeat; repeat 0 is a shorter one of the same shape that warms up.
func (m *Material) Task(c Case, repeat int) (t Task, err error) {
	t = Task{Case: c, Seed: uint64(1000 + repeat)}
	if repeat == 0 && c.Op != OpGRPO { // whose steps are all alike
		t.New = min(c.New, 4)
	}
	r := rand.New(rand.NewPCG(t.Seed, uint64(len(c.Name))))
	switch c.Op {
	case OpGenerate:
		t.Prompts = m.random(r, c.Batch, c.Prompt)
	case OpRewrite:
		t.Prompts, err = m.problems(r, c.Batch)
	case OpServe: // each client asks twice
		t.Prompts = m.random(r, 2*c.Copies, c.Prompt)
	case OpRollout:
		t.Observations, err = m.observations(c.Batch, c.Turns, repeat)
		for e, episode := range t.Observations {
			if repeat == 0 {
				t.Observations[e] = episode[:1]
			}
		}
	case OpLogprobs, OpUpdate, OpTrain, OpPass:
		rows := c.Rows
		if (c.Op == OpTrain || c.Op == OpPass) && repeat == 0 { // every training has a step of its own that warms up
			rows = 2
		}
		shared := m.random(r, 1, c.Context)[0]
		for _, rest := range m.random(r, rows, c.Length-c.Context) {
			t.Sequences = append(t.Sequences, slices.Concat(shared, rest))
		}
	case OpGRPO:
		t.Texts = make([][]string, c.Repeats(m.Repeats)+1)
		for step := range t.Texts {
			if t.Texts[step], err = m.texts(c.Batch, c.Prompt, step); err != nil {
				return t, err
			}
		}
	}
	return t, err
}

// Greedy asks for the continuation of a fixed prompt.
func (m *Material) Greedy() Task {
	prompt := make([]int32, 32)
	for i := range prompt {
		prompt[i] = int32(min(1000+i, m.VocabSize-1))
	}
	return Task{Case: Case{Op: OpGreedy, Copies: 1, New: 16}, Prompts: [][]int32{prompt}}
}

// random draws ids evenly from the ordinary tokens: speed does not depend on what they say.
func (m *Material) random(r *rand.Rand, count, length int) [][]int32 {
	out := make([][]int32, count)
	for i := range out {
		out[i] = make([]int32, length)
		for j := range out[i] {
			out[i][j] = int32(firstOrdinary + r.IntN(m.VocabSize-firstOrdinary))
		}
	}
	return out
}

// problems ask the policy to write down a word problem once more.
func (m *Material) problems(r *rand.Rand, count int) ([][]int32, error) {
	out := make([][]int32, count)
	for i := range out {
		a, b, c := 3+r.IntN(40), 2+r.IntN(9), 4+r.IntN(30)
		text := fmt.Sprintf("Repeat this problem word by word, and write nothing else.\n\nMia has %d boxes with %d "+
			"stamps each. On Monday she gives %d stamps to Tom, and on Tuesday she buys %d more boxes for $%d each. "+
			"How many stamps does Mia have now, and how much money did she spend in total?", a, b, c, c/2, a/2)
		var err error
		if out[i], err = m.Tokenizer.EncodeMessages([]chat.Message{{Role: "user", Content: text}}, true); err != nil {
			return nil, fmt.Errorf("a problem as a chat: %w", err)
		}
	}
	return out, nil
}

// texts are prompts of words that are exactly length tokens long.
func (m *Material) texts(count, length, step int) ([]string, error) {
	if len(m.words) == 0 {
		return nil, fmt.Errorf("the vocabulary has no token that is a word with a space before it, which GRPO " +
			"prompts are made of")
	}
	r := rand.New(rand.NewPCG(uint64(step), 7))
	out := make([]string, count)
	for i := range out {
		var text strings.Builder
		for range length {
			text.WriteString(m.words[r.IntN(len(m.words))])
		}
		out[i] = text.String()
		ids, err := m.Tokenizer.EncodeOrdinary(out[i])
		if err != nil || len(ids) != length {
			return nil, fmt.Errorf("a prompt of %d words became %d tokens, expected one for each (%v)", length,
				len(ids), err)
		}
	}
	return out, nil
}

// observations plays Sokoban with the environment's own solver, one move a turn, and gives what the policy is shown:
// the tokens that come before each turn's reply, [episode][turn]. They end the turn before, so histories of replies of
// any length stay well formed.
func (m *Material) observations(episodes, turns, repeat int) ([][][]int32, error) {
	document := fmt.Sprintf("[model]\npath = \"none\"\n[[envs]]\ntag = \"sokoban\"\nmax_actions_per_turn = "+
		"1\nmax_turns = %d\n", turns)
	c, err := config.Parse("benchmark", []byte(document), nil)
	if err != nil {
		return nil, fmt.Errorf("the Sokoban configuration: %w", err)
	}
	player := rollout.NewPlayer(m.Tokenizer, nil, c.Rollout, nil, 1)
	// Only levels that take long enough give all turns.
	shown, err := player.Demonstrations(context.Background(), rollout.DemonstrationPlan{
		Envs: c.Envs, Seed: int64(500_000 + 1000*repeat), Episodes: 6 * episodes,
	})
	if err != nil {
		return nil, fmt.Errorf("playing Sokoban: %w", err)
	}
	var out [][][]int32
	for _, e := range shown {
		if len(e.Turns) != turns || len(out) == episodes {
			continue
		}
		var episode [][]int32
		for k, turn := range e.Turns {
			from := turn.Observation
			if k > 0 {
				from = e.Turns[k-1].End - 1 // the expert's end of turn, which a reply of fixed length lacks
			}
			episode = append(episode, e.IDs[from:turn.Reply])
		}
		out = append(out, episode)
	}
	if len(out) < episodes {
		return nil, fmt.Errorf("only %d of %d Sokoban levels lasted %d turns, expected %d", len(out), len(shown), turns,
			episodes)
	}
	return out, nil
}
