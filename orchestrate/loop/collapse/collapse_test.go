package collapse

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/orchestrate/run/metrics"
)

var options = config.Collapse{Every: 1, Samples: 64, FirstTurn: true, MultiTurn: true, StdEps: 1e-3, EMADecay: 0.9}

// letters is a tokenizer of one token per byte.
func letters(ids []int32) string {
	var s strings.Builder
	for _, id := range ids {
		s.WriteByte(byte(id))
	}
	return s.String()
}

func ids(text string) []int32 {
	out := make([]int32, len(text))
	for i := range out {
		out[i] = int32(text[i])
	}
	return out
}

// play makes an episode of (prompt, reply) pairs.
func play(group int, texts ...string) *episode.Episode {
	e := &episode.Episode{Group: group}
	for i := 0; i < len(texts); i += 2 {
		t := episode.Turn{Observation: len(e.IDs)}
		e.IDs = append(e.IDs, ids(texts[i])...)
		t.Reply = len(e.IDs)
		e.IDs = append(e.IDs, ids(texts[i+1])...)
		t.End = len(e.IDs)
		e.Turns = append(e.Turns, t)
	}
	return e
}

func TestTurns(t *testing.T) {
	e := play(3, "A<think>", " go left \n</think><answer>x</answer>", "B<think>", "</think>", "C<think>",
		"never closed", "D<think>", "up</think></think>")
	got := Turns(e, letters)
	for i, want := range []string{"go left", "", "", "up"} {
		if letters(got[i].Thought) != want || got[i].Group != 3 {
			t.Errorf("turn %d: %q, want %q", i, letters(got[i].Thought), want)
		}
	}
	if p := letters(got[3].Prompt); p != letters(e.IDs[:e.Turns[3].Reply]) ||
		!strings.HasPrefix(p, "A<think> go left") {
		t.Errorf("the last prompt is %q", p)
	}
	e.Contexts = []int{e.Turns[3].Observation}
	if p := letters(Turns(e, letters)[3].Prompt); p != "D<think>" {
		t.Errorf("in a context of its own the last prompt is %q", p)
	}
	// Tokens of more than a letter: the one that begins the end is not thought any more.
	words := map[int32]string{1: "go ", 2: "left", 3: ".</", 4: "think>", 5: "\n"}
	decode := func(list []int32) (s string) {
		for _, id := range list {
			s += words[id]
		}
		return s
	}
	if got := thought([]int32{5, 1, 2, 3, 4, 5}, decode); !reflect.DeepEqual(got, []int32{1, 2}) {
		t.Errorf("thought %v, want [1 2]", got)
	}
}

func near(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if v, ok := got[name]; !ok || math.Abs(v-value) > 1e-6 {
			t.Errorf("%s is %v (%v), want %g", name, v, ok, value)
		}
	}
}

// The vector of the specification: two thoughts of one token under two prompts.
func TestEstimate(t *testing.T) {
	var m Meter
	rows := []Turn{{Thought: []int32{1}}, {Thought: []int32{1, 2}}}
	columns := [][]int32{{1}, {2}}
	sums := [][]float64{{-1, -2}, {-3, -2.4}} // the second thought has two tokens
	got := lineOf(struct {
		E *Estimate `metric:"p"`
	}{m.estimate("p", &sample{rows, columns, []int{0, 1}, sums}, options)})
	g1, g2 := -1.379885, -1.338792
	std := math.Abs(g1-g2) / 2
	near(t, got, map[string]float64{
		"p/mi_estimate": 0.2593386, "p/mi_upper_bound": math.Ln2, "p/matched_log_prob_mean": -1.1,
		"p/marginal_log_prob_mean":  (g1 + g2) / 2,
		"p/conditional_entropy_est": 1.1, "p/reasoning_entropy_est": -(g1 +
			g2) / 2, "p/retrieval_accuracy": 1, "p/retrieval_chance_level": 0.5,
		"p/retrieval_above_chance": 0.5, "p/retrieval_accuracy@2": 1, "p/retrieval_chance_level@2": 1,
		"p/conditional_entropy_seq_est": 1.7,
	})
	for name, want := range map[string]float64{"p/marginal_std": std, "p/marginal_std_ema": std,
		"p/mi_zscore": 0.2593386 / (std + 1e-3)} {
		if math.Abs(got[name]/want-1) > 1e-4 {
			t.Errorf("%s is %g, want %g", name, got[name], want)
		}
	}
	if _, ok := got["p/retrieval_accuracy@4"]; ok {
		t.Error("retrieval among four of two prompts")
	}
	// The average moves a tenth of the way, and retrieval counts equal prompts as one.
	again := lineOf(struct {
		E *Estimate `metric:"p"`
	}{m.estimate("p", &sample{rows, [][]int32{{7}, {7}}, []int{0, 1}, [][]float64{{-1, -1}, {-2, -2}}}, options)})
	near(t, again, map[string]float64{"p/mi_estimate": 0, "p/retrieval_accuracy": 1, "p/retrieval_chance_level": 1,
		"p/marginal_std": 0})
	if want := 0.9 * std; math.Abs(again["p/marginal_std_ema"]/want-1) > 1e-4 {
		t.Errorf("the average is %g, want %g", again["p/marginal_std_ema"], want)
	}
}

// A policy that thinks what its prompt says has all the information there is; one that always thinks the same has none.
func TestMeasure(t *testing.T) {
	rng := func() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
	var following, template []*episode.Episode
	for group, name := range []string{"a", "b", "c", "d"} {
		for range 3 {
			following = append(following, play(group, name+"<think>", name+name+"</think>1", "x<think>",
				name+"</think>2"))
			template = append(template, play(group, name+"<think>", "zz</think>1", "x<think>", "nothing"))
		}
	}
	// Letters of the prompt are likely in the thought, others hardly.
	score := func(list []Sequence) ([]float64, error) {
		sums := make([]float64, len(list))
		for i, s := range list {
			for _, id := range s.IDs[s.From:] {
				p := 0.001
				if s.IDs[0] == id {
					p = 0.9
				}
				sums[i] += math.Log(p)
			}
		}
		return sums, nil
	}
	var m Meter
	got, err := measured(&m, following, letters, score, options, rng())
	if err != nil {
		t.Fatal(err)
	}
	near(t, got, map[string]float64{
		"collapse/valid_thinking_rate": 1, "collapse/first_turn_num_total": 12, "collapse/first_turn_num_valid": 12,
		"collapse_first_turn_sample/retrieval_accuracy": 1, "collapse_first_turn_sample/mi_upper_bound": math.Log(4),
		"collapse_trajectory_sample/mi_upper_bound": math.Log(24),
	})
	if mi := got["collapse_first_turn_sample/mi_estimate"]; mi < 0.99*math.Log(4) || mi > math.Log(4) {
		t.Errorf("information %g, want nearly log 4", mi)
	}
	if again, _ := measured(new(Meter), following, letters, score, options, rng()); !reflect.DeepEqual(got, again) {
		t.Error("equal draws give different numbers")
	}
	got, err = measured(&m, template, letters, score, options, rng())
	if err != nil {
		t.Fatal(err)
	}
	near(t, got, map[string]float64{
		"collapse/valid_thinking_rate": 0.5, "collapse_first_turn_sample/mi_estimate": 0,
		"collapse_trajectory_sample/mi_estimate":             0,
		"collapse_first_turn_sample/conditional_entropy_est": -math.Log(0.001),
	})
	few := options
	few.Samples, few.MultiTurn = 5, false
	if got, err = measured(&m, following, letters, score, few, rng()); err != nil ||
		got["collapse_trajectory_sample/mi_estimate"] != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err = measured(&m, []*episode.Episode{play(0, "a", "no thought")}, letters, score, options,
		rng()); err != nil || len(got) != 4 {
		t.Errorf("without thoughts: %v, %v", got, err)
	}
	mixed := []*episode.Episode{play(0, "a<think>", "z</think>"), play(0, "b<think>", "z</think>"),
		play(1, "c<think>", "z</think>")}
	if _, err := measured(&m, mixed, letters, score, options, rng()); err == nil ||
		!strings.Contains(err.Error(), "group 0") {
		t.Errorf("two prompts in a group: %v", err)
	}
}

func lineOf(m any) map[string]float64 {
	line := metrics.Line{}
	line.Add(m)
	return line.Floats()
}

func measured(m *Meter, episodes []*episode.Episode, decode func(ids []int32) string,
	score func([]Sequence) ([]float64, error), c config.Collapse,
	rng *rand.Rand) (map[string]float64, error) {
	found, err := m.Measure(episodes, decode, score, c, rng)
	return lineOf(found), err
}
