package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gyre/envs"
	"gyre/orchestrate/config"
	"gyre/orchestrate/loop/episode"
)

// seat is one episode being played. It is handed back and forth between the sampling loop and a worker; only one of
// them touches it at a time.
type seat struct {
	player  *Player
	source  config.Env
	spec    envs.Spec
	prompts prompts
	index   int // of the episode in its batch
	group   int
	member  int
	seed    int64 // of the environment
	holdout Holdout

	game  game
	shown view // of the pending turn
	talk  transcript
	past  []past
	first int // of past, that the policy still sees
	// squeezed counts how often a turn was forgotten only because the rest would not have fitted.
	squeezed int
	// temperature is set where replies were sampled at another one than that of training: their log-probs are another policy's.
	temperature bool
	stop        string
	busy        time.Duration // spent on environment and text
	problem     error         // of closing the environment, which does not concern the episode
}

// seats lays out the episodes of some sources: group after group, member after member.
func (p *Player) seats(sources []config.Env, envSeed int64, holdout Holdout) ([]*seat, error) {
	var all []*seat
	group := 0
	for _, source := range sources {
		spec, err := p.spec(&source)
		if err != nil {
			return nil, err
		}
		prompts, err := newPrompts(p.rollout.For(source))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source.Tag, err)
		}
		for range source.Groups {
			for member := range source.GroupSize {
				all = append(all, &seat{
					player: p, source: source, spec: spec, prompts: prompts, index: len(all), group: group, member: member,
					seed: envSeed + int64(group), holdout: holdout,
				})
			}
			group++
		}
	}
	return all, nil
}

// spec finds a source's environment, fills the source's defaults from it and makes the first instance, which tries its options.
func (p *Player) spec(source *config.Env) (envs.Spec, error) {
	spec, err := envs.Lookup(source.Tag)
	if err != nil {
		return spec, err
	}
	if source.MaxActions == 0 {
		source.MaxActions = spec.MaxActions
	}
	env, err := p.instances.take(spec, *source)
	if err != nil {
		return spec, err
	}
	p.instances.give(*source, env)
	return spec, nil
}

// open starts the environment and the conversation. Its errors, like answer's, end the whole run: they come from the
// configuration or the chat template. What the environment does wrong only ends the episode.
func (s *seat) open(ctx context.Context) error {
	env, err := s.player.instances.take(s.spec, s.source)
	if err != nil {
		return err
	}
	rollout := s.player.rollout
	s.game = game{
		env: env, limit: seconds(rollout.EnvTimeout), penalty: rollout.FormatPenalty, actionsLeft: s.source.MaxActions,
		weights: s.player.weights, totals: map[string]float64{}, finals: map[string]float64{},
		rules: rules{maxActions: s.source.MaxActions, maxActionsPerTurn: s.source.MaxActionsPerTurn,
			replyWords: s.spec.MaxReplyWords, plain: s.spec.PlainReplies},
	}
	// After a failed reset the state is empty: the episode still has a prompt, but nothing to learn from.
	taken, state, failed := s.game.reset(ctx, s.seed, s.member, s.holdout)
	s.seed = taken
	if s.talk.conversation, err = s.conversation(); err != nil { // for its tools
		s.game.fail(err)
		failed, s.game.tools, s.talk.conversation = err, nil, s.player.tokenizer.NewConversation()
	}
	s.shown = view{turn: 1, state: state, actionsLeft: s.game.actionsLeft}
	spans, err := s.continued(s.talk.conversation, nil, s.shown)
	if err != nil {
		return fmt.Errorf("%s: first prompt: %w", s, err)
	}
	s.talk.observe(spans)
	switch {
	case failed != nil:
		s.finish(s.game.stop)
	case !s.fits(len(s.talk.ids)):
		s.finish(episode.Length)
	}
	return nil
}

// fits says whether a turn can be played after a prompt of so many tokens: its reply may be as long as replies may be, and no reply
// is cut short by the sequence's end.
func (s *seat) fits(prompt int) bool { return prompt+s.maxTokens() <= s.player.rollout.MaxLength }

func (s *seat) maxTokens() int {
	if s.source.MaxTokens > 0 {
		return s.source.MaxTokens
	}
	return s.player.rollout.MaxTokens
}

// answer takes the reply of the pending turn: it executes what the reply says and, unless that ends the episode, adds
// the next turn's prompt.
func (s *seat) answer(ctx context.Context, reply []int32, logprobs []float32, trained bool) error {
	s.game.take(ctx, envs.Reply{Tokens: len(reply), Truncated: s.player.cut(reply, s.maxTokens())})
	out := s.game.play(ctx, s.read(ctx, s.player.text(reply)))
	if s.player.rollout.Replies == repliesAction && !s.game.rules.plain {
		var err error
		if reply, err = s.player.bare(s.prompts.format, out.actions); err != nil {
			return fmt.Errorf("%s: the action in place of the reply: %w", s, err)
		}
		logprobs = nil
	}
	s.talk.reply(reply, logprobs, trained)
	s.player.weights.credit(&s.talk, out, s.player.lengths(reply))
	s.past = append(s.past, past{view: s.shown, reply: reply, text: s.prefix() + s.player.text(reply), actions: out.actions, reward: out.reward})
	switch {
	case s.game.stop != "":
		s.finish(s.game.stop)
		return nil
	case len(s.talk.turns) >= s.source.MaxTurns:
		s.finish(episode.Turns)
		return nil
	}
	state, err := s.game.observe(ctx)
	if err != nil {
		s.finish(s.game.stop)
		return nil
	}
	s.shown = view{turn: len(s.past) + 1, state: state, actionsLeft: s.game.actionsLeft, invalid: out.invalid, reward: out.reward}
	fits, err := s.ask(s.shown)
	if err != nil {
		return fmt.Errorf("%s: prompt of turn %d: %w", s, s.shown.turn, err)
	}
	if !fits {
		s.finish(episode.Length) // without the prompt that nobody would answer
	}
	return nil
}

// prefix opens every reply, read gives the actions that one asks for. A plain reply is one action, unless the environment reads it.
func (s *seat) prefix() string {
	if s.game.rules.plain {
		return ""
	}
	return s.prompts.format.prefix()
}

func (s *seat) read(ctx context.Context, said string) []string {
	switch {
	case s.game.stop != "":
		return nil
	case s.game.start.ReadReply != nil:
		return s.game.read(ctx, said, s.source.MaxActionsPerTurn)
	case s.game.rules.plain:
		return []string{said}
	}
	return s.prompts.format.parse(said, s.source.MaxActionsPerTurn)
}

func (s *seat) finish(stop string) {
	s.stop = stop
	s.leave()
}

// leave gives the environment back.
func (s *seat) leave() {
	s.problem = s.game.release(func(env envs.Env) { s.player.instances.give(s.source, env) })
}

// episode is the finished product, before normalisation.
func (s *seat) episode(step int) *episode.Episode {
	e := &episode.Episode{
		Step: step, Group: s.group, Index: s.index, Tag: s.source.Tag, Label: s.game.start.Name, Gold: s.game.start.Answer, Seed: s.seed,
		IDs: slices.Clip(s.talk.ids), Mask: s.talk.mask, Logprob: s.talk.logprob, Rewards: s.talk.rewards, Turns: s.talk.turns,
		Components: s.talk.components, Contexts: s.talk.contexts,
		Success: s.stop == episode.Terminated && s.game.success, Stop: s.stop, Metrics: map[string]float64{},
	}
	if s.talk.unknown || s.temperature {
		e.Logprob = nil
	}
	if limit := s.player.rollout.MaxLength; len(e.Turns) == 0 && len(e.IDs) > limit {
		// Only a first prompt that does not fit gets here. Nobody learns from it, so it need not be carried around.
		e.IDs, e.Mask, e.Logprob = e.IDs[:limit], e.Mask[:limit], e.Logprob[:min(limit, len(e.Logprob))]
	}
	e.Score = e.Return()
	maps.Copy(e.Metrics, s.game.totals)
	for key := range e.Metrics {
		e.Metrics[key] /= float64(max(1, len(e.Turns)))
	}
	maps.Copy(e.Metrics, s.game.finals)
	for name, shares := range e.Components {
		for _, share := range shares {
			e.Metrics["reward/"+name] += share.Value
		}
	}
	e.Metrics["success"] = indicator(e.Success)
	e.Metrics["num_actions"] = float64(s.game.numActions)
	e.Metrics["num_turns"] = float64(len(e.Turns))
	if mode := s.player.rollout.Context; mode == contextWindow || mode == contextSingle {
		e.Metrics["context_sequences"], e.Metrics["context_squeezed"] = float64(max(1, len(e.Contexts))), float64(s.squeezed)
	}
	e.Metrics["episodic_return"] = s.game.earned
	return e
}

// String names the episode in errors.
func (s *seat) String() string {
	return fmt.Sprintf("%s episode %d (group %d, member %d, seed %d)", s.source.Tag, s.index, s.group, s.member, s.seed)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
