package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/generation"
	"gyre/orchestrate/model/chat"
	"gyre/torch"
)

// corridor is a line of cells with the goal at its right end. Seeds change its length. "break" options make it faulty.
type corridor struct {
	options        *corridorOptions
	length, at     int
	member, closed int
}

type corridorOptions struct {
	Fault string `option:"fault" doc:"what goes wrong, most of it on the second step (reset: at once; levels: with every seed)"`
	Steps int
}

var transient atomic.Int32           // how many more steps fail with the fault "once"
var hanging = make(chan struct{})    // never closed: a call that waits for it hangs
var closedLate atomic.Int32          // environments closed while nothing hung in them any more
var release = make(chan struct{}, 9) // lets one "hang once" call return

func init() {
	envs.Register(envs.Spec{
		Tag: "corridor", Type: "corridor", MaxActions: 6, MaxReplyWords: 20,
		NewOptions: func() any { return &corridorOptions{} },
		New:        func(o any) (envs.Env, error) { return &corridor{options: o.(*corridorOptions)}, nil },
	})
	envs.Register(envs.Spec{
		Tag: "mute", Type: "corridor", MaxActions: 6,
		NewOptions: func() any { return &corridorOptions{} },
		New: func(o any) (envs.Env, error) {
			return struct{ envs.Env }{&corridor{options: o.(*corridorOptions)}}, nil
		},
	})
}

func (c *corridor) Reset(_ context.Context, seed int64, member int) (envs.Start, error) {
	c.member = member
	if c.options.Fault == "levels" || c.options.Fault == "reset" && seed%2 == 0 {
		return envs.Start{}, errors.New("no level")
	}
	c.length, c.at = 3+int(seed%3), 0
	start := envs.Start{Instruction: "Walk to the last cell.", Actions: []string{"Left", "Right"}}
	if c.options.Fault == "stops" {
		start.StopStrings = []string{""}
	}
	return start, nil
}

func (c *corridor) Observe() envs.Observation {
	return envs.Observation{Text: fmt.Sprintf("cell %d of %d", c.at, c.length)}
}

func (c *corridor) Close() error {
	c.closed++
	if c.options.Fault == "release" || c.options.Fault == "late" {
		closedLate.Add(1)
	}
	return nil
}

func (c *corridor) Step(ctx context.Context, action string) (envs.Result, error) {
	if c.options.Steps++; c.options.Steps == 2 {
		switch c.options.Fault {
		case "panic":
			panic("out of cells")
		case "hang":
			<-hanging
		case "release":
			<-release
		case "error":
			return envs.Result{}, errors.New("lost\n\x1b[2J12:00 step 9")
		case "unreliable":
			return envs.Result{}, fmt.Errorf("a stray line: %w", envs.ErrUnreliable)
		case "late":
			<-ctx.Done()
			return envs.Result{}, errors.New("nobody answers")
		}
	}
	if c.options.Fault == "once" && c.member != 1 && transient.Add(-1) >= 0 {
		return envs.Result{}, errors.New("out of order")
	}
	if c.options.Fault == "member" && c.member == 1 {
		return envs.Result{}, errors.New("member 1 is lost")
	}
	if c.options.Fault == "jitter" {
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	}
	was := c.at
	if action == "Right" {
		c.at++
	} else {
		c.at = max(0, c.at-1)
	}
	r := envs.Result{Reward: -0.1, Valid: true, Effective: c.at != was,
		Info: map[string]float64{"cell": float64(c.at), "final_cell": float64(c.at)}}
	if c.options.Fault == "rich" {
		r.Reward = 0.7 * envs.LargestReward
	}
	if c.at == c.length-1 {
		r.Reward, r.Done, r.Success = 1, true, true
	}
	return r, nil
}

func (c *corridor) Solve() ([]string, bool) {
	var path []string
	for range c.length - 1 - c.at {
		path = append(path, "Right")
	}
	return path, true
}

// script is an engine that answers from a function of (request id, turn) and checks the rules of the real one.
type script struct {
	t         *testing.T
	tokenizer *chat.Tokenizer
	reply     func(id uint64, turn int) string
	shuffle   *rand.Rand // finishes requests in random order and not all at once
	stepErr   error
	submitErr error

	waiting  []torch.Request
	ready    []torch.Output
	turns    map[uint64]int
	episodes map[uint64][]int32 // tokens of the turns so far
	aborted  int
	stops    [][]string // of the requests
	finish   torch.Finish

	vocabulary bool

	forgets  bool // a prompt need not extend the last turn
	again    bool // episodes may be played twice, with the same random draws
	prompts  [][]int32
	sampling map[uint64]torch.Sampling // of the last request
	seeds    map[uint64]bool
}

func (s *script) Submit(r torch.Request) error {
	if s.turns == nil {
		s.turns, s.episodes, s.seeds = map[uint64]int{}, map[uint64][]int32{}, map[uint64]bool{}
	}
	if s.submitErr != nil {
		return s.submitErr
	}
	known := s.episodes[r.ID]
	if s.again && s.seeds[r.Sampling.Seed] && len(r.Prompt) < len(known) { // the episode is played again
		known, s.turns[r.ID] = nil, 0
	}
	if s.forgets {
		known = nil
	}
	if s.sampling == nil {
		s.sampling = map[uint64]torch.Sampling{}
	}
	s.sampling[r.ID] = r.Sampling
	s.prompts = append(s.prompts, slices.Clone(r.Prompt))
	if len(r.Prompt) < len(known) || !slices.Equal(r.Prompt[:len(known)], known) {
		s.t.Errorf("request %d: the prompt does not extend the last turn's %d tokens", r.ID, len(known))
	}
	if s.seeds[r.Sampling.Seed] && !s.again {
		s.t.Errorf("request %d: sampling seed %d was used before", r.ID, r.Sampling.Seed)
	}
	s.seeds[r.Sampling.Seed] = true
	s.stops = append(s.stops, r.StopStrings)
	r.Prompt = slices.Clone(r.Prompt)
	s.waiting = append(s.waiting, r)
	return nil
}

func (s *script) SetVocabulary([][]byte) error {
	s.vocabulary = true
	return nil
}

func (s *script) Progress() ([]torch.Partial, error)                        { return nil, nil }
func (s *script) TensorParallel(_ context.Context, lead func() error) error { return lead() }
func (s *script) Follows() bool                                             { return false }

func (s *script) Step() (int, error) {
	if s.stepErr != nil {
		return 0, s.stepErr
	}
	n := len(s.waiting)
	if s.shuffle != nil && n > 0 {
		s.shuffle.Shuffle(n, func(i, j int) { s.waiting[i], s.waiting[j] = s.waiting[j], s.waiting[i] })
		n = s.shuffle.IntN(n + 1)
	}
	for _, r := range s.waiting[:n] {
		ids, err := s.tokenizer.EncodeMarkup(s.reply(r.ID, s.turns[r.ID]))
		if err != nil {
			return 0, err
		}
		out := torch.Output{ID: r.ID, Tokens: ids, Finish: cmp.Or(s.finish, torch.FinishStop),
			CachedTokens: len(s.episodes[r.ID])}
		for i := range ids {
			out.Logprobs = append(out.Logprobs, -float32(i+1)/16)
		}
		s.turns[r.ID]++
		s.episodes[r.ID] = append(r.Prompt, ids...)
		s.ready = append(s.ready, out)
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
	return len(s.waiting), nil
}

func (s *script) Poll() ([]torch.Output, error) {
	out := s.ready
	s.ready = nil
	return out, nil
}

func (s *script) Abort(id uint64) error {
	s.waiting = slices.DeleteFunc(s.waiting, func(r torch.Request) bool { return r.ID == id })
	s.aborted++
	return nil
}

// defaults are small, fast and unlike the configuration's own defaults where that helps to tell things apart.
func defaults() config.Rollout {
	return config.Rollout{
		Temperature: 1, TopP: 1, MaxTokens: 64, MaxLength: 4096, Think: true, ActionSeparator: "||",
		FormatPenalty: -0.25,
		Prompt:        "chat", NormalizeWithin: "state", Normalize: "identity", EnvTimeout: 60, EnvWorkers: 8,
		MaxFailed: 1,
	}
}

func source(groups, size int, options map[string]any) config.Env {
	return config.Env{Tag: "corridor", Groups: groups, GroupSize: size, MaxTurns: 3, MaxActionsPerTurn: 2,
		Options: options}
}

func player(t *testing.T, sampler generation.Engine, rollout config.Rollout) *Player {
	t.Helper()
	p := NewPlayer(tokenizer(t), sampler, rollout, nil, 1)
	return p
}
