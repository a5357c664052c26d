package rollout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
	"gyre/torch"
)

// judge names three parts of its reward, one in each placement: the letters "abc" of a reply carry the second.
type judge struct {
	options *judgeOptions
	running bool
	played  int
}

type judgeOptions struct {
	Bad  string `option:"bad" doc:"a part that no episode can hold"`
	Stop string `option:"stop" doc:"a string that ends a reply"`
	Asks bool   `option:"asks" doc:"the reward says what a success is"`
}

var judgesMade, judgesClosed atomic.Int32

func init() {
	envs.Register(envs.Spec{
		Tag: "judge", Type: "judge", MaxActions: 4, PlainReplies: true,
		NewOptions: func() any { return new(judgeOptions) },
		NewFactory: func(r envs.Request) (envs.Factory, error) {
			for _, c := range r.Components {
				if c.Name == "refused" {
					return nil, fmt.Errorf("no part %q", c.Name)
				}
			}
			return func() (envs.Env, error) {
				judgesMade.Add(1)
				return &judge{options: r.Options.(*judgeOptions)}, nil
			}, nil
		},
	})
}

func (j *judge) Reset(context.Context, int64, int) (envs.Start, error) {
	j.running = true
	j.played++
	if j.options.Stop == "" {
		return envs.Start{}, nil
	}
	return envs.Start{StopStrings: []string{j.options.Stop}}, nil
}
func (j *judge) Observe() envs.Observation { return envs.Observation{Text: "say abc"} }
func (j *judge) Close() error              { judgesClosed.Add(1); return nil }

func (j *judge) Step(_ context.Context, reply string) (envs.Result, error) {
	if reply == "fail" {
		return envs.Result{}, errors.New("cannot judge")
	}
	at := strings.Index(reply, "abc")
	parts := []envs.Component{
		{Name: "correctness", Value: 1},
		{Name: "letters", Value: 0.6, Placement: envs.PlaceSpread, From: at, To: at + 3},
		{Name: "length", Value: float64(len(reply)), Placement: envs.PlaceMean},
	}
	switch j.options.Bad {
	case "name":
		parts[0].Name = ""
	case "value":
		parts[0].Value /= 0 * parts[0].Value
	case "placement":
		parts[0].Placement = "middle"
	}
	return envs.Result{Reward: 7, Components: parts, Valid: true, Success: true, Done: j.options.Asks,
		Unjudged: j.options.Asks}, nil
}

// judged plays one episode of two turns with the judge.
func judged(t *testing.T, p *Player, options map[string]any) (*episode.Episode, Stats, error) {
	t.Helper()
	from := config.Env{Tag: "judge", Groups: 1, GroupSize: 1, MaxTurns: 2, MaxActionsPerTurn: 1, Options: options}
	episodes, stats, err := p.Play(t.Context(), Plan{Stream: Train, Sources: []config.Env{from},
		Sampling: torch.Sampling{Temperature: 1, TopP: 1}})
	if err != nil || len(episodes) == 0 {
		return nil, stats, err
	}
	return episodes[0], stats, nil
}

func saying(t *testing.T, rewards []config.Reward, replies ...string) (*Player, *script) {
	t.Helper()
	sampler := &script{t: t, tokenizer: tokenizer(t), reply: func(_ uint64, turn int) string {
		return replies[turn] +
			eos
	}}
	p := NewPlayer(tokenizer(t), sampler, defaults(), rewards, 1)
	return p, sampler
}

func playerOf(p *Player, _ *script) *Player { return p }

// sum adds up what a part gives to the tokens [from, to).
func sum(shares []episode.Reward, from, to int) (total float64, tokens int) {
	for _, s := range shares {
		if s.Token >= from && s.Token < to {
			total += s.Value
			tokens++
		}
	}
	return total, tokens
}

func TestNamedPartsReachTheEpisode(t *testing.T) {
	e, _, err := judged(t, playerOf(saying(t, nil, "so: abc!", "xyz")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Check(); err != nil {
		t.Error(err)
	}
	if e.Score != 14 || len(e.Rewards) != 2 || e.Rewards[1].Token != len(e.IDs)-1 {
		t.Errorf("score %v of rewards %v, want the environment's own 7 on the last token of both replies", e.Score,
			e.Rewards)
	}
	first, second := e.Turns[0], e.Turns[1]
	want := []episode.Reward{{Token: first.End - 1, Value: 1}, {Token: second.End - 1, Value: 1}}
	if !reflect.DeepEqual(e.Components["correctness"], want) {
		t.Errorf("correctness %v, want %v", e.Components["correctness"], want)
	}
	if total, tokens := sum(e.Components["length"], first.Reply, first.End); !near(total, 8) ||
		tokens != first.End-first.Reply {
		t.Errorf("length gives %v to %d tokens of the first reply, want 8 to all %d", total, tokens,
			first.End-first.Reply)
	}
	text := ""
	for _, share := range e.Components["letters"] {
		if share.Token < first.End {
			text += string(tokenizer(t).TokenBytes(e.IDs[share.Token]))
		}
	}
	if total, _ := sum(e.Components["letters"], first.Reply, first.End); !near(total, 0.6) || text != "abc" {
		t.Errorf("letters gives %v to %q, want 0.6 to abc", total, text)
	}
	// In the second reply there is no such stretch: its last token carries the part.
	if total, tokens := sum(e.Components["letters"], second.End-1, second.End); !near(total, 0.6) || tokens != 1 {
		t.Errorf("letters gives %v to %d tokens at the end of the second reply, want 0.6 to 1", total, tokens)
	}
	m := summarized([]*episode.Episode{e})
	if m["judge/reward/correctness"] != 2 || !near(m["judge/reward/letters"], 1.2) ||
		!near(m["judge/reward/length"], 11) {
		t.Errorf("metrics %v, want the sums of the parts", m)
	}
}

func TestWeightedParts(t *testing.T) {
	rewards := []config.Reward{
		{Name: "correctness", Weight: 2, Placement: "environment"}, {Name: "length", Weight: -0.5, Placement: "last"},
		{Name: "letters", Weight: 10, Placement: "environment"},
	}
	e, _, err := judged(t, playerOf(saying(t, rewards, "so: abc!", "abc")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2*(2+6) - 0.5*(8+3); !near(e.Score, want) || !near(e.Return(), want) ||
		!near(e.Metrics["episodic_return"], want) {
		t.Errorf("score %v, return %v, metric %v, want %v", e.Score, e.Return(), e.Metrics["episodic_return"], want)
	}
	if total, _ := sum(e.Components["length"], 0, len(e.IDs)); !near(total, 11) {
		t.Errorf("components are weighted: length is %v, want 11", total)
	}
	first := e.Turns[0]
	if total, tokens := sum(e.Rewards, first.End-1, first.End); !near(total, 2-4) || tokens != 1 {
		t.Errorf("the first reply's last token earns %v, want 2 - 4", total)
	}
	if total, _ := sum(e.Rewards, first.Reply, first.End-1); !near(total, 6) {
		t.Errorf("the letters of the first reply earn %v, want 6", total)
	}
}

// Where the environment does not tell, a success is what earns the most that the components can earn, or as much as
// the experiment says; with a program's reward nobody knows.
func TestSuccessFollowsTheReward(t *testing.T) {
	short := map[string]any{"component": "length"} // 0 to 1; the environment gives 1 for every letter
	letters := config.Reward{Name: "letters", Weight: 2, Options: map[string]any{"component": "format"}}
	length := config.Reward{Name: "length", Weight: 1, Options: short}
	program := config.Reward{Name: "letters", Weight: 2, Options: map[string]any{"component": "command"}}
	for name, c := range map[string]struct {
		rewards          []config.Reward
		reply            string
		at               float64
		success, unknown bool
	}{
		"below the most":         {rewards: []config.Reward{letters}, reply: "abc"},
		"as asked":               {rewards: []config.Reward{letters}, reply: "abc", at: 1.2, success: true},
		"less than asked":        {rewards: []config.Reward{letters}, reply: "abc", at: 1.3},
		"the most":               {rewards: []config.Reward{letters, length}, reply: "abcd", success: true},
		"a program":              {rewards: []config.Reward{program}, reply: "abc", unknown: true},
		"a program and a number": {rewards: []config.Reward{program}, reply: "abc", at: 1, success: true},
	} {
		p, _ := saying(t, c.rewards, c.reply)
		p.JudgeFrom(c.at)
		e, _, err := judged(t, p, map[string]any{"asks": true})
		if err != nil {
			t.Fatal(err)
		}
		line, err := episode.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		again, err := episode.Decode(line, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []*episode.Episode{e, again} {
			if got.Success != c.success || got.Unjudged != c.unknown {
				t.Errorf("%s: success %v, unknown %v, want %v, %v", name, got.Success, got.Unjudged, c.success, c.unknown)
			}
		}
		m := summarized([]*episode.Episode{e})
		if _, counted := m["judge/success"]; counted == c.unknown {
			t.Errorf("%s: metrics %v", name, m)
		}
	}
}

// [[rewards]] weigh what the environment pays; the penalty for a reply of the wrong form is training's own and stays.
func TestFormatPenaltyBesideWeightedParts(t *testing.T) {
	w := newWeighting([]config.Reward{{Name: "correctness", Weight: 2, Placement: "environment"}})
	for _, c := range []struct {
		components []envs.Component
		want       float64
	}{
		{nil, -0.25},
		{[]envs.Component{{Name: "correctness", Value: 1}, {Name: "unweighted", Value: 5}}, 2 - 0.25},
	} {
		_, components := w.apply(envs.Result{Reward: 9, Components: c.components})
		script := &transcript{}
		script.reply([]int32{1, 2, 3}, nil, true, false)
		w.credit(script, outcome{components: components, penalty: -0.25}, []int{1, 1, 1})
		if want := []episode.Reward{{Token: 2, Value: c.want}}; !reflect.DeepEqual(script.rewards, want) {
			t.Errorf("components %v: rewards %v, want %v", c.components, script.rewards, want)
		}
	}
}

// A name that weighs nothing, or that an environment refuses, is an error and not a reward of zero.
func TestRewardNamesAreChecked(t *testing.T) {
	for want, name := range map[string]string{"they have: correctness, length, letters": "corectness",
		`no part "refused"`: "refused"} {
		_, _, err := judged(t, playerOf(saying(t, []config.Reward{{Name: name, Weight: 1}}, "abc", "abc")), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", name, err, want)
		}
	}
}

func TestPartsThatNoEpisodeCanHold(t *testing.T) {
	for bad, want := range map[string]string{"name": "name is empty", "value": "+Inf",
		"placement": `placement "middle"`} {
		p, sampler := saying(t, nil, "abc", "abc")
		sampler.again = true
		e, stats, err := judged(t, p, map[string]any{"bad": bad})
		if err != nil {
			t.Fatal(err)
		}
		if e != nil || stats.Failed[episode.Error] != 2 || !strings.Contains(stats.Failures[0].Problem, want) {
			t.Errorf("%s: episode %v, failures %v, want an error with %q", bad, e, stats.Failures, want)
		}
	}
}

// Sampling stops where the environment says.
func TestEnvironmentsNameStopStrings(t *testing.T) {
	p, sampler := saying(t, nil, "abc", "abc")
	if _, _, err := judged(t, p, map[string]any{"stop": "</tool>"}); err != nil {
		t.Fatal(err)
	}
	if len(sampler.stops) != 2 || sampler.stops[1][0] != "</tool>" || !sampler.vocabulary {
		t.Errorf("asked for %v (vocabulary %v), want </tool> twice", sampler.stops, sampler.vocabulary)
	}
}

// Instances are made once and reused by later episodes and steps; one that fails is closed and replaced.
func TestInstancesAreReused(t *testing.T) {
	p, sampler := saying(t, nil, "abc", "fail")
	sampler.again = true
	made, closed := judgesMade.Load(), judgesClosed.Load()
	for i := range int32(3) { // "fail" is the last reply of both attempts
		sampler.turns, sampler.seeds, sampler.episodes = map[uint64]int{}, map[uint64]bool{}, map[uint64][]int32{}
		if _, stats, err := judged(t, p, nil); err != nil || len(stats.Failures) != 2 {
			t.Fatalf("failures %v, error %v", stats.Failures, err)
		}
		if m, n := judgesMade.Load()-made, judgesClosed.Load()-closed; m != 2*(i+1) || n != 2*(i+1) {
			t.Errorf("play %d: %d made and %d closed, want one for each attempt", i, m, n)
		}
	}
	p, sampler = saying(t, nil, "abc", "abc")
	made, closed = judgesMade.Load(), judgesClosed.Load()
	for range 3 {
		sampler.turns, sampler.seeds, sampler.episodes = map[uint64]int{}, map[uint64]bool{}, map[uint64][]int32{}
		if _, _, err := judged(t, p, nil); err != nil {
			t.Fatal(err)
		}
	}
	if m, n := judgesMade.Load()-made, judgesClosed.Load()-closed; m != 1 || n != 0 {
		t.Errorf("three plays made %d environments and closed %d, want 1 and 0", m, n)
	}
	if err := p.Close(); err != nil || judgesClosed.Load()-closed != 1 {
		t.Errorf("%d closed with the player (%v), want 1", judgesClosed.Load()-closed, err)
	}
}

// A part of an empty reply is carried by the last token before it; stretches are carried by the tokens they touch.
func TestPlacesOfParts(t *testing.T) {
	empty, three := episode.Turn{Observation: 2, Reply: 6, End: 6}, episode.Turn{Observation: 2, Reply: 6, End: 9}
	for _, placement := range []string{envs.PlaceMean, envs.PlaceSpread, envs.PlaceLast} {
		got := place(envs.Component{Value: 3, Placement: placement}, empty, 5, nil)
		if len(got) != 1 || got[0] != (episode.Reward{Token: 5, Value: 3}) {
			t.Errorf("placement %s in an empty reply: %v", placement, got)
		}
	}
	if got := place(envs.Component{Value: 3, Placement: envs.PlaceMean}, three, 8, []int{1, 1, 1}); len(got) != 3 ||
		got[0] != (episode.Reward{Token: 6, Value: 1}) {
		t.Errorf("the mean over three tokens: %v", got)
	}
	for stretch, want := range map[[2]int][]int{{0, 3}: {6, 7, 8}, {0, 1}: {6}, {2, 9}: {8}, {1, 1}: {5}, {-1, 2}: {5},
		{3, 4}: {5}} {
		var got []int
		for _, share := range place(envs.Component{Value: 3, From: stretch[0], To: stretch[1],
			Placement: envs.PlaceSpread}, three, 5, []int{1, 1, 1}) {
			got = append(got, share.Token)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the bytes %v lie on the tokens %v, want %v", stretch, got, want)
		}
	}
	if got := place(envs.Component{Value: 3, From: 1, To: 2, Placement: envs.PlaceSpread}, three, 8,
		[]int{1, 1, 1}); len(got) != 1 || got[0].Token != 7 {
		t.Errorf("the middle of three tokens: %v", got)
	}
}

// DAPO's overlong shaping: nothing up to the zone, then down to the whole penalty at the limit.
func TestOverlong(t *testing.T) {
	c := config.Rollout{MaxLength: 10, OverlongTokens: 4, OverlongPenalty: 2}
	for length, want := range map[int]float64{5: 0, 6: 0, 7: -0.5, 8: -1, 10: -2} {
		e := &episode.Episode{IDs: make([]int32, length), Mask: make([]bool, length)}
		e.Mask[3] = true
		got := overlong(e, c)
		if episode.Sum(got) != want || len(got) > 0 && got[0].Token != 3 {
			t.Errorf("%d tokens lose %v, want %v on token 3", length, got, want)
		}
	}
	two := &episode.Episode{IDs: make([]int32, 12), Mask: make([]bool, 12), Contexts: []int{6}}
	two.Mask[11] = true
	if got := overlong(two, c); got != nil {
		t.Errorf("two contexts of 6 tokens lose %v", got)
	}
}
